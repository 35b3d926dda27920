"""The rules and tokens of a node in files, which tests change while it runs."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Literal

from reknit.config import Config, load
from tests.tokens import write_tokens


class GuardedFiles:
    """A settings file with rules, and a file of tokens."""

    def __init__(self, folder: Path, secrets: dict[str, str], *rules: str) -> None:
        self.settings = folder / "rules.toml"
        self._tokens = folder / "tokens"
        self.tokens(secrets)
        self.allow(*rules)

    def allow(self, *rules: str) -> None:
        """Write other rules, all at once."""
        draft = self.settings.with_suffix(".draft")
        draft.write_text(f'[security]\ntokens_file = "{self._tokens}"\nallow = {list(rules)}\n')
        os.replace(draft, self.settings)

    def tokens(self, secrets: dict[str, str], expires_us: int = 0) -> None:
        """Write other tokens, all at once."""
        write_tokens(self._tokens, secrets, expires_us)

    def guard(self, config: Config, audit: Literal["auto", "off"] = "off") -> Config:
        """The configuration of a node with these rules and tokens. Without an audit, its events are those of a test."""
        read = load(self.settings, environ={})
        return replace(config, security=replace(read.security, audit=audit), origins=read.origins)
