"""Those who come to a door, and what they show there."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

ANN: Final = "ann"
"""May publish on and subscribe to `plant/**`."""
BOB: Final = "bob"
"""May the same on `other/**`."""
ROOT: Final = "root"
"""May everything."""
LATE: Final = "late"
"""The name of a proof of ann's that has expired."""
STRANGER: Final = "stranger"
"""The name of a proof that nobody whom the node trusts has given: an invented token, a forged signature."""
LOCAL: Final = "local"
"""The Unix user who runs the attack; may publish on `local/**`."""
FOREIGN: Final = "http://evil.example"
"""A site that is not one of `http.origins`."""


class Credential(Enum):
    """What somebody shows at a door."""

    NONE = "none"
    WRONG = "wrong"
    EXPIRED = "expired"
    OTHER = "other's"
    """A valid one, of an identity that may do the same elsewhere, but not here."""
    FOREIGN = "foreign origin"
    """The right one, from a page of another site."""
    RIGHT = "right"


class Visitor(NamedTuple):
    """Somebody who comes with a credential, to do what only `identity` may."""

    credential: Credential
    identity: str
    secrets: Mapping[str, str]
    """The tokens, by name."""

    @property
    def user(self) -> str:
        """The name under which they come."""
        return {Credential.NONE: "", Credential.OTHER: BOB}.get(self.credential, self.identity)

    @property
    def shown(self) -> str:
        """The name of the proof that they show; empty for none."""
        match self.credential:
            case Credential.NONE:
                return ""
            case Credential.WRONG:
                return STRANGER
            case Credential.EXPIRED:
                return LATE
            case _:
                return self.user

    @property
    def token(self) -> str:
        """The token that they show; empty for none. The system itself says who a Unix user is."""
        return self.secrets[self.shown] if self.shown not in ("", LOCAL) else ""

    @property
    def headers(self) -> dict[str, str]:
        """The same as headers of an HTTP request."""
        shown = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {**shown, "Origin": FOREIGN} if self.credential is Credential.FOREIGN else shown
