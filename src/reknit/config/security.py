"""`[security]`: tokens, permissions and the audit trail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from reknit.config.quotas import check_quotas
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
    token: str = setting("", "the token that this node or program presents to nodes", secret=True)
    token_file: str = setting(
        "", "a file with that token alone, which nobody else can read; instead of token"
    )
    tokens_file: str = setting(
        "", "the file of tokens, for every door, as `reknit token` writes it; empty: no tokens"
    )
    jwt: tuple[str, ...] = setting(
        (),
        "issuers of JSON Web Tokens that are trusted, each as 'ISSUER AUDIENCE JWKS_FILE' and perhaps the identity "
        "as 'corp/{email}'; empty: none",
    )
    identities: tuple[str, ...] = setting(
        (),
        "which identity a certificate or a Unix user stands for, as 'uri:spiffe://plant/pump-7 pump-7', 'dns:NAME "
        "ID', 'subject:CN=NAME ID' or 'unix:USER ID'; empty: the common name of a certificate is the identity",
    )
    identities_required: bool = setting(
        False,
        "refuse clients whose certificate or Unix user stands for no identity; they are anonymous otherwise",
    )
    allow: tuple[str, ...] = setting(
        (),
        "permissions at every door, as 'ann publish plant/**'; empty: everyone may do everything, or, with a "
        "tokens_file, everyone who presents a token",
    )
    quotas: tuple[str, ...] = setting(
        (),
        "what one identity may use, as 'ann events_per_s=1000 connections=10' or '* bytes_per_s=1MiB'; empty: all",
        check=check_quotas,
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
