"""`[security]`: tokens, permissions and the audit trail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from reknit.config.settings import Section, setting
from reknit.config.units import KIB, MIB

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
    audit: Literal["auto", "on", "off"] = setting(
        "auto",
        "whether logins, refusals, orders and changes are events on reknit/audit; auto: if there are rules or tokens",
    )
    audit_bytes_per_day_max: int = setting(
        16 * MIB,
        "audit entries of logins and refusals; beyond it they are summed up until there is room",
        low=64 * KIB,
    )
