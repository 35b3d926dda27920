"""Certificates for those who come to the TLS door. It is imported only where `cryptography` is installed."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from reknit.testing.attack.credentials import ANN, BOB, LATE, ROOT, STRANGER

NODE: Final = "node"
TRUSTED: Final = "authority"
IDENTITIES: Final = (
    f"uri:spiffe://attack/{ANN} {ANN}",
    f"dns:{BOB}.attack.example {BOB}",
    f"subject:O=Attack,CN={ROOT} {ROOT}",
)
"""Whom the certificates stand for, as in `security.identities`: by each kind of name."""
_DAY: Final = timedelta(days=1)


class Authority:
    """Signs certificates, and writes them into a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _subject(name)
        builder = _builder(self._name, self._name, self._key.public_key(), _DAY)
        signed = builder.add_extension(x509.BasicConstraints(True, None), critical=True).sign(
            self._key, SHA256()
        )
        self._write(name, signed, self._key)

    def sign(self, file: str, common_name: str, *names: x509.GeneralName, lasts: timedelta = _DAY) -> None:
        """A certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_subject(common_name), self._name, key.public_key(), lasts)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        self._write(file, builder.sign(self._key, SHA256()), key)

    def _write(self, name: str, made: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (self._folder / f"{name}.pem").write_bytes(made.public_bytes(Encoding.PEM) + pem)


def _subject(common_name: str) -> x509.Name:
    organization = x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Attack")
    return x509.Name([organization, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, lasts: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number())
    return builder.not_valid_before(now - 30 * _DAY).not_valid_after(now + lasts)


class Certificates:
    """All certificates of an attack, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        trusted, stranger = Authority(folder, TRUSTED), Authority(folder, "another authority")
        ann = x509.UniformResourceIdentifier(f"spiffe://attack/{ANN}")
        trusted.sign(NODE, NODE, x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        trusted.sign(ANN, "x", ann)
        trusted.sign(BOB, "x", x509.DNSName(f"{BOB}.attack.example"))
        trusted.sign(ROOT, ROOT)
        trusted.sign(LATE, "x", ann, lasts=-_DAY)
        stranger.sign(STRANGER, "x", ann)

    def file(self, name: str) -> str:
        """A certificate with its key."""
        return str(self._folder / f"{name}.pem")

    def context(self, shown: str) -> ssl.SSLContext:
        """A context that shows a certificate; none for an empty name."""
        context = ssl.create_default_context(cafile=self.file(TRUSTED))
        if shown:
            context.load_cert_chain(self.file(shown))
        return context
