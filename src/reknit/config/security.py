"""`[security]`: tokens and permissions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from reknit.config.settings import Section, setting

__all__ = ["SecuritySettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings(Section):
    """The permissions on this node, and the token that this node or program presents to other nodes.

    >>> SecuritySettings(allow="ann publish plant/**, * subscribe plant/**").allow
    ('ann publish plant/**', '* subscribe plant/**')
    """

    title: ClassVar[str] = "security"
    token: str = setting("", "the token that this node or program presents to nodes")
    tokens_file: str = setting(
        "", "the file of tokens, for every door, as `reknit token` writes it; empty: no tokens"
    )
    allow: tuple[str, ...] = setting(
        (),
        "permissions at every door, as 'ann publish plant/**'; empty: everyone may do everything, or, with a "
        "tokens_file, everyone who presents a token",
    )
