"""What a connection itself proves about the other side: a verified certificate, or the user of a Unix socket."""

from __future__ import annotations

import pwd
import ssl
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

SHORT: Final = {
    "commonName": "CN",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "stateOrProvinceName": "ST",
    "localityName": "L",
    "domainComponent": "DC",
    "userId": "UID",
}
"""Attributes of a subject as they are usually written; others keep their names."""


class Credentials(NamedTuple):
    """Names of the other side, each with its kind, and when they expire.

    >>> of_user(0).names
    ('unix:0', 'unix:root')
    """

    names: tuple[str, ...] = ()
    """Such as `uri:spiffe://plant/pump-7`, `dns:pump-7.example`, `subject:CN=pump-7,O=Plant`, `cn:pump-7`, `unix:0`."""
    expires_us: int = 0
    """0 for never."""
    authority: str = ""
    """The file of authorities and the one of them that vouches for the certificate; empty if that is not known."""

    @property
    def common_name(self) -> str:
        """The common name in a certificate; empty without one."""
        return next((name[3:] for name in self.names if name.startswith("cn:")), "")


NO_CREDENTIALS: Final = Credentials()


def of_certificate(certificate: Any, authority: str = "") -> Credentials:
    """The names in a client's verified certificate, as Python's ssl gives it: URIs and DNS names before the subject.

    >>> subject = ((("countryName", "DE"),), (("commonName", "pump-7"),))
    >>> of_certificate({"subject": subject, "subjectAltName": (("DNS", "pump-7.example"),)}).names
    ('dns:pump-7.example', 'subject:C=DE,CN=pump-7', 'cn:pump-7')
    """
    if not certificate:
        return NO_CREDENTIALS
    return Credentials(tuple(_names(certificate)), _expires_us(certificate), authority)


def _names(certificate: Any) -> Iterator[str]:
    alternatives = certificate.get("subjectAltName", ())
    yield from (f"uri:{value}" for kind, value in alternatives if kind == "URI")
    yield from (f"dns:{value.lower()}" for kind, value in alternatives if kind == "DNS")
    rows = [row for rows in certificate.get("subject", ()) for row in rows]
    if rows:
        yield "subject:" + ",".join(f"{SHORT.get(name, name)}={value}" for name, value in rows)
    yield from [f"cn:{value}" for name, value in rows if name == "commonName"][:1]


def _expires_us(certificate: Any) -> int:
    text = certificate.get("notAfter")
    return ssl.cert_time_to_seconds(text) * 1_000_000 if text else 0


def of_user(uid: int) -> Credentials:
    """The number of a user of this machine, and the name."""
    try:
        return Credentials((f"unix:{uid}", f"unix:{pwd.getpwuid(uid).pw_name}"))
    except KeyError:
        return Credentials((f"unix:{uid}",))
