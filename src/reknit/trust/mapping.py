"""Which identity a certificate or a Unix user stands for, as it is written in `security.identities`.

    uri:spiffe://plant/pumps/* pump      certificates with such a URI among their alternative names
    dns:pump-7.plant.example pump-7      certificates with this DNS name
    subject:CN=pump-7,O=Plant pump-7     certificates with this subject, its attributes in their order
    unix:1000 ann                        the user with this number, or with a name, at a Unix socket

The first line that matches counts. A `*` at the end stands for anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from reknit.credentials import Credentials
from reknit.errors import InvalidConfig
from reknit.trust.identities import NOBODY, Identity, Unauthenticated
from reknit.trust.tokens import check_names

SETTING: Final = "security.identities"
KINDS: Final = ("uri", "dns", "subject", "unix")
CERTIFICATE: Final = "certificate"
UNIX: Final = "unix user"


class Authorities(Protocol):
    """Those who vouch for the certificates of clients at a door."""

    ca_file: str
    """The file that names them."""

    def trusts(self, authority: str) -> bool:
        """Whether certificates of an authority count."""

    def watch(self, on_dropped: Callable[[], None]) -> None:
        """Call this whenever an authority is no longer trusted."""


class IdentityMapping:
    """The table. Raises `InvalidConfig`.

    >>> mapping = IdentityMapping(["uri:spiffe://plant/pumps/* pump"])
    >>> mapping.identify(Credentials(("uri:spiffe://plant/pumps/7", "cn:7"))).name
    'pump'
    """

    def __init__(self, lines: Sequence[str], is_required: bool = False) -> None:
        self._rows = [_row(line) for line in lines]
        self._has_certificates = any(not known.startswith("unix:") for known, _ in self._rows)
        self._is_required = is_required

    def identify(self, credentials: Credentials) -> Identity:
        """The identity of whoever has proven these names. Raises `Unauthenticated`.

        Without a line about certificates, the common name of one is the identity.
        """
        if not credentials.names:
            return NOBODY
        means = UNIX if credentials.names[0].startswith("unix:") else CERTIFICATE
        name, proof = self._find(credentials, means)
        if not name and self._is_required:
            why = f"no line of {SETTING} is about this {means} ({credentials.names[0]})"
            raise Unauthenticated(why)
        if not name:
            return NOBODY
        evidence = "\n".join((credentials.authority, *credentials.names)).encode()
        return Identity(name, means, proof, credentials.expires_us, evidence)

    def _find(self, credentials: Credentials, means: str) -> tuple[str, str]:
        """The identity, and the name that stands for it; both empty if there is none."""
        for known, identity in self._rows:
            for name in credentials.names:
                if name == known or (known.endswith("*") and name.startswith(known[:-1])):
                    return identity, name
        if means == CERTIFICATE and not self._has_certificates:
            return _usable(credentials.common_name), credentials.common_name
        return "", ""

    def objection(self, identity: Identity) -> str:
        """Why an identity that was proven so is another now; empty if it is not."""
        _, *names = identity.evidence.decode().split("\n")
        try:
            found = self.identify(Credentials(tuple(names)))
        except Unauthenticated as error:
            return error.why
        if found.name == identity.name:
            return ""
        return f"the {identity.means} {identity.proof!r} stands for {identity.name} no longer ({SETTING})"


def authority_of(identity: Identity) -> tuple[str, str]:
    """The file and the id of the authority that vouched for the certificate of an identity; empty if not known."""
    file, _, authority = identity.evidence.decode().partition("\n")[0].rpartition("#")
    return file, authority


def _row(line: str) -> tuple[str, str]:
    known, _, identity = line.strip().rpartition(" ")
    kind, colon, value = known.strip().partition(":")
    try:
        if kind not in KINDS or not colon or not value or value == "*":
            raise ValueError(f"needs a name of the kinds {', '.join(KINDS)}, and an identity")
        check_names("line", identity)
    except ValueError as error:
        why = f"has {line!r}, which {error}: write it as 'uri:spiffe://plant/pump-7 pump-7'"
        raise InvalidConfig(SETTING, "settings", why) from None
    return known.strip().lower() if kind == "dns" else known.strip(), identity


def _usable(common_name: str) -> str:
    """A common name, if the rules can name it; otherwise empty."""
    try:
        check_names("certificate", common_name)
    except ValueError:
        return ""
    return common_name
