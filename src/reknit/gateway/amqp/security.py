"""Authentication: tokens, users with passwords from a file, and certificates."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Callable
from typing import Final

from reknit.config import AmqpSettings
from reknit.config.credentials import read_credentials
from reknit.credentials import Credentials
from reknit.gateway.amqp.sasl import SaslServer
from reknit.node.api import GatewayNode
from reknit.transport.authorities import credentials_of
from reknit.transport.tls import Refuse, server_tls
from reknit.trust.gate import Gate
from reknit.trust.identities import Identity, Unauthenticated

log = logging.getLogger("reknit.amqp")

PASSWORD: Final = "password"


class AmqpUsers:
    """The users of `amqp.users_file`. Raises `InvalidConfig`.

    >>> AmqpUsers("").identify("ann", "s3cret")
    """

    def __init__(self, path: str, on_change: Callable[[], None] = lambda: None) -> None:
        self.files = [path] if path else []
        self._path = path
        self._on_change = on_change
        self._passwords = self._read()

    def _read(self) -> dict[str, bytes]:
        found = read_credentials(self._path, "amqp.users_file", PASSWORD)
        return {name: _digest(password) for name, password in found.items()}

    def reload(self) -> None:
        """Read the file again. Raises `InvalidConfig`; then the users stay as they were."""
        self._passwords = self._read()
        self._on_change()

    def identify(self, name: str, password: str) -> Identity | None:
        """The identity of a user; None if the password is wrong."""
        known, given = self._passwords.get(name), _digest(password)
        is_right = hmac.compare_digest(given, known or bytes(len(given)))
        return Identity(name, PASSWORD, name, evidence=given) if is_right and known else None

    def objection(self, identity: Identity) -> str:
        """Why an identity that a password has proven no longer holds; empty if it does."""
        is_valid = self._passwords.get(identity.name) == identity.evidence
        return "" if is_valid else f"the password of {identity.name} was changed or removed"


def _digest(password: str) -> bytes:
    """A hash, so that no password stays in memory, and all are compared in the same time."""
    return hashlib.sha256(password.encode()).digest()


class AmqpSecurity:
    """Makes the SASL exchange of each connection. Raises `InvalidConfig`."""

    def __init__(self, settings: AmqpSettings, gate: Gate, refuse: Refuse) -> None:
        self._settings = settings
        self._gate = gate
        self.users = AmqpUsers(settings.users_file, gate.proofs_changed)
        self.tls = server_tls(settings, refuse)

    def follow(self, node: GatewayNode) -> None:
        """Read certificates and users again when they change."""
        node.reloader.add("the certificate for amqps://", self.tls)
        node.gate.trust(self.tls)
        if self.users.files:
            node.gate.follow(PASSWORD, self.users.objection)
            node.reloader.add("the file of AMQP users", self.users)

    def sasl(self, transport: asyncio.Transport) -> SaslServer:
        """The SASL exchange for a new connection. PLAIN needs TLS unless the settings say otherwise."""
        is_open = self.tls is None and self._settings.plain_needs_tls
        mechanisms = [one for one in self._settings.mechanisms if one != "PLAIN" or not is_open]
        return SaslServer(mechanisms, self._plain, self._external(credentials_of(transport)))

    def _external(self, certified: Credentials) -> Identity | None:
        """The identity in the client's certificate; None if there is none."""
        try:
            found = self._gate.identify("", certified)
        except Unauthenticated as error:
            log.warning("a client of AMQP can't use its certificate: %s", error)
            return None
        return found if found.means else None

    def _plain(self, name: str, secret: str) -> Identity | None:
        """The identity of a user with a password, or with a token, whose identity or name is the user's."""
        if (user := self.users.identify(name, secret)) is not None:
            return user
        try:
            found = self._gate.identify(secret) if secret else None
        except Unauthenticated:
            return None
        return found if found is not None and name in (found.name, found.proof) else None
