"""Files of tokens whose secrets tests know."""

from __future__ import annotations

import os
from pathlib import Path

from reknit.trust.tokens import Token, digest_of


def write_tokens(path: Path, secrets: dict[str, str], expires_us: int = 0) -> str:
    """A file with a token for each identity, of the same name. It replaces an earlier one at once; gives its path."""
    tokens = [Token(name, name, digest_of(secret), 0, expires_us) for name, secret in secrets.items()]
    draft = path.with_suffix(".draft")
    draft.write_text("".join(f"{token.line}\n" for token in tokens))
    draft.chmod(0o600)
    os.replace(draft, path)
    return str(path)
