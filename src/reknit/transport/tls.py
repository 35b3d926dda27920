"""TLS from certificate files: a context for listeners, and one for everything that connects to a node.

Every connection is at least TLS 1.2. A file that can't be used is refused with the name of its setting.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from reknit.config import Config
from reknit.errors import InvalidConfig
from reknit.transport.authorities import UNKNOWN, authorities_of
from reknit.transport.tls_handshake import TlsContext

log = logging.getLogger("reknit.transport")

Refuse = Callable[[str, str], InvalidConfig]
"""The error for a setting (without its section), and why it can't be used."""

FileState = tuple[int, int, int] | None
"""What changes when a file is replaced; None for a file that can't be found."""


class ServerTlsSettings(Protocol):
    """The settings of a section whose listeners speak TLS."""

    @property
    def tls_cert_file(self) -> str: ...
    @property
    def tls_key_file(self) -> str: ...
    @property
    def tls_ca_file(self) -> str: ...
    @property
    def tls_needs_client_cert(self) -> bool: ...


class TlsFiles(NamedTuple):
    """What a program needs to connect: whom it trusts (empty: the system's authorities), and what it shows.

    >>> TlsFiles("ca.pem").names
    ('tls_ca_file', 'tls_client_cert_file', 'tls_client_key_file')
    """

    ca: str = ""
    cert: str = ""
    key: str = ""
    names: tuple[str, str, str] = ("tls_ca_file", "tls_client_cert_file", "tls_client_key_file")
    """Their settings."""

    def states(self) -> tuple[FileState, ...]:
        """What changes when one of the files is replaced."""
        return tuple(file_state(path) for path in (self.ca, self.cert, self.key) if path)


NO_FILES: Final = TlsFiles()


def file_state(path: str) -> FileState:
    """What changes when a file is replaced: time of change, size and inode."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


# -- for listeners


class ServerTls:
    """The TLS of a section's listeners. Connections that are accepted after `reload` get the files as they are then."""

    def __init__(self, settings: ServerTlsSettings, refuse: Refuse) -> None:
        self._settings = settings
        self._refuse = refuse
        self.files = [settings.tls_cert_file, settings.tls_key_file]
        """What it is made from."""
        self.ca_file = settings.tls_ca_file
        if self.ca_file:
            self.files.append(self.ca_file)
        self.context = self._make()
        """For the next connection."""
        self._authorities = authorities_of(self.context)
        self._has_dropped = False
        self._watchers: list[Callable[[], None]] = []

    def reload(self) -> None:
        """Read the files again. Raises `InvalidConfig`; then the context stays as it was."""
        self.context = self._make()
        before, self._authorities = self._authorities, authorities_of(self.context)
        if before - self._authorities:
            self._has_dropped = True
            for watcher in self._watchers:
                watcher()

    def watch(self, on_dropped: Callable[[], None]) -> None:
        """Call this whenever an authority is no longer trusted."""
        self._watchers.append(on_dropped)

    def trusts(self, authority: str) -> bool:
        """Whether certificates of an authority still count. Without knowing it, they do until one was dropped."""
        return authority in self._authorities or (authority == UNKNOWN and not self._has_dropped)

    def _make(self) -> TlsContext:
        settings, refuse = self._settings, self._refuse
        context = _context(ssl.PROTOCOL_TLS_SERVER)
        context.ca_file = settings.tls_ca_file
        names = ("tls_cert_file", "tls_key_file")
        _show(context, settings.tls_cert_file, settings.tls_key_file, names, refuse)
        if settings.tls_ca_file:
            _trust(context, settings.tls_ca_file, "tls_ca_file", refuse)
            is_required = settings.tls_needs_client_cert
            context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
        return context


def server_tls(settings: ServerTlsSettings, refuse: Refuse) -> ServerTls | None:
    """TLS with the section's certificate; None without one. With `tls_ca_file`, clients may show certificates too."""
    return ServerTls(settings, refuse) if settings.tls_cert_file else None


# -- for everything that connects

_CONTEXTS_MAX: Final = 64
_contexts: dict[TlsFiles, tuple[tuple[FileState, ...], ssl.SSLContext]] = {}
"""The context of each set of files, and the state in which they were read."""


def client_tls(config: Config) -> ssl.SSLContext:
    """The context of `[transport]`, for every connection that a program, a command or a node opens.

    It is made anew when a file has changed. Raises `InvalidConfig`.
    """
    return client_context(client_files(config), lambda name, why: refusal(config, f"transport.{name}", why))


def client_files(config: Config) -> TlsFiles:
    """The files of `[transport]` for connecting: a node without a client's certificate shows its own."""
    settings = config.transport
    if settings.tls_client_cert_file:
        return TlsFiles(settings.tls_ca_file, settings.tls_client_cert_file, settings.tls_client_key_file)
    names = ("tls_ca_file", "tls_cert_file", "tls_key_file")
    return TlsFiles(settings.tls_ca_file, settings.tls_cert_file, settings.tls_key_file, names)


def client_context(files: TlsFiles, refuse: Refuse) -> ssl.SSLContext:
    """A context for connecting, which verifies the node's certificate and name. Raises what `refuse` makes.

    If files that could be used were replaced by such that can't, what was read before stays in use.
    """
    states = files.states()
    known = _contexts.pop(files, None)
    if known is None or known[0] != states:
        try:
            known = states, _make_client(files, refuse)
        except InvalidConfig as error:
            if known is None:
                raise
            log.warning("the certificates read before stay in use: %s", error)
            known = states, known[1]
    while len(_contexts) >= _CONTEXTS_MAX:
        del _contexts[next(iter(_contexts))]
    _contexts[files] = known
    return known[1]


def _make_client(files: TlsFiles, refuse: Refuse) -> ssl.SSLContext:
    context = _context(ssl.PROTOCOL_TLS_CLIENT)
    if files.ca:
        _trust(context, files.ca, files.names[0], refuse)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if files.cert:
        _show(context, files.cert, files.key, files.names[1:], refuse)
    return context


# -- for both


def refusal(config: Config, setting: str, why: str) -> InvalidConfig:
    """The error for a setting, with the place that it comes from."""
    return InvalidConfig(setting, config.origin(setting), why)


def _context(protocol: int) -> TlsContext:
    context = TlsContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _show(context: ssl.SSLContext, cert: str, key: str, names: tuple[str, ...], refuse: Refuse) -> None:
    """Show this certificate to the other side."""
    _check_readable(cert, names[0], refuse)
    _check_readable(key, names[1], refuse)

    def password() -> str:
        raise refuse(names[1], f"names {key}, which is encrypted; reknit needs a key without a passphrase")

    try:
        context.load_cert_chain(cert, key, password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise refuse(
                names[1], f"names {key}, which is not the key of the certificate in {cert}"
            ) from None
        name, file = (
            (names[0], cert) if b"-BEGIN CERTIFICATE" not in Path(cert).read_bytes() else (names[1], key)
        )
        what = "certificate" if name == names[0] else "private key"
        raise refuse(
            name, f"names {file}, which holds no usable {what} in PEM form ({_plain(error)})"
        ) from None


def _trust(context: ssl.SSLContext, file: str, name: str, refuse: Refuse) -> None:
    """Trust what the authorities in this file have signed."""
    _check_readable(file, name, refuse)
    try:
        context.load_verify_locations(file)
    except ssl.SSLError as error:
        raise refuse(
            name, f"names {file}, which holds no certificates in PEM form ({_plain(error)})"
        ) from None


def _check_readable(file: str, name: str, refuse: Refuse) -> None:
    try:
        with open(file, "rb"):
            pass
    except OSError as error:
        raise refuse(
            name, f"names {file}, which can't be read: {os.strerror(error.errno or 0).lower()}"
        ) from None


def _plain(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
