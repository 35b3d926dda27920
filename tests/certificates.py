"""Certificates for tests, made by openssl: real ones, as users have them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
HERE = "DNS:localhost,IP:127.0.0.1"


class Certificates:
    """A folder of certificates: `NAME.pem` with its key in `NAME.key`; an authority is called `ca` unless named."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority()

    def authority(self, name: str = "ca") -> Path:
        """A new authority."""
        _openssl(
            self.folder, "req", "-x509", *NEW_KEY, "-days", "2", "-subj", f"/CN={name} authority",
            "-keyout", f"{name}.key", "-out", f"{name}.pem",
        )  # fmt: skip
        return self.pem(name)

    def renew(self, name: str = "ca") -> Path:
        """A new certificate of an authority, with its old key."""
        _openssl(
            self.folder, "req", "-x509", "-key", f"{name}.key", "-days", "3", "-subj", f"/CN={name} authority",
            "-out", f"{name}.pem",
        )  # fmt: skip
        return self.pem(name)

    def make(self, name: str, *, names: str = HERE, by: str = "ca", days: int = 2) -> Path:
        """A certificate, signed by an authority; with `days=-1` it has expired. Replaces one of the same name."""
        _openssl(
            self.folder,
            "req",
            *NEW_KEY,
            "-subj",
            f"/CN={name}",
            "-keyout",
            f"{name}.new",
            "-out",
            f"{name}.csr",
        )
        (self.folder / "names").write_text(f"subjectAltName={names}\n")
        _openssl(
            self.folder, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{by}.pem", "-CAkey", f"{by}.key",
            "-CAcreateserial", "-extfile", "names", "-days", str(days), "-out", f"{name}.pem",
        )  # fmt: skip
        (self.folder / f"{name}.new").replace(self.key(name))
        return self.pem(name)

    def pem(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def settings(
        self, name: str = "", ca: str = "ca", client: str = "", section: str = "transport"
    ) -> list[str]:
        """`--set` for `reknit up`: this certificate, what to trust, and a client's certificate."""
        files = {"tls_ca_file": self.pem(ca)} if ca else {}
        if name:
            files |= {"tls_cert_file": self.pem(name), "tls_key_file": self.key(name)}
        if client:
            files |= {"tls_client_cert_file": self.pem(client), "tls_client_key_file": self.key(client)}
        return [word for key, file in files.items() for word in ("--set", f"{section}.{key}={file}")]

    def environ(self, ca: str = "ca", client: str = "") -> dict[str, str]:
        """The same for a command, as variables."""
        names = [word.partition("=") for word in self.settings(ca=ca, client=client)[1::2]]
        return {f"REKNIT_{name.replace('.', '__').upper()}": value for name, _, value in names}


def _openssl(folder: Path, *words: str) -> None:
    try:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=150)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
