"""Authentication and access: users and passwords from a file, certificates, and configured rules."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reknit.config import AmqpSettings
from reknit.errors import InvalidConfig
from reknit.gateway.access import AccessRules
from reknit.gateway.amqp.sasl import SaslServer

Refuse = Callable[[str, str], InvalidConfig]
"""The error for a setting (without `amqp.`), and why it can't be used."""


class AmqpSecurity:
    """Reads the settings once. Raises `InvalidConfig`."""

    def __init__(self, settings: AmqpSettings, refuse: Refuse) -> None:
        self._settings = settings
        self._refuse = refuse
        self._users = self._read_users()
        self.tls = self._context()
        self.rules = self._read_rules()

    def _read_users(self) -> dict[str, str]:
        if not self._settings.users_file:
            return {}
        try:
            lines = Path(self._settings.users_file).read_text("utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise self._refuse("users_file", f"can't be read: {error}") from None
        users: dict[str, str] = {}
        for number, line in enumerate(lines, 1):
            words = line.split()
            if words and not words[0].startswith("#"):
                if len(words) != 2:
                    raise self._refuse("users_file", f"needs a name and a password on line {number}")
                users[words[0]] = words[1]
        return users

    def _read_rules(self) -> AccessRules:
        try:
            return AccessRules(self._settings.allow)
        except InvalidConfig as error:
            raise self._refuse("allow", error.why) from None

    def _context(self) -> ssl.SSLContext | None:
        settings = self._settings
        if not settings.tls_cert_file:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file)
        except (OSError, ssl.SSLError) as error:
            raise self._refuse("tls_cert_file", f"can't be used: {error}") from None
        if settings.tls_ca_file:
            try:
                context.load_verify_locations(settings.tls_ca_file)
            except (OSError, ssl.SSLError) as error:
                raise self._refuse("tls_ca_file", f"can't be used: {error}") from None
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def sasl(self, transport: asyncio.Transport) -> SaslServer:
        """The SASL exchange for a new connection. PLAIN needs TLS unless the settings say otherwise."""
        is_open = self.tls is None and self._settings.plain_needs_tls
        mechanisms = [one for one in self._settings.mechanisms if one != "PLAIN" or not is_open]
        return SaslServer(mechanisms, self._users, subject(transport.get_extra_info("peercert")))


def subject(certificate: Any) -> str:
    """The common name in a client's certificate, as Python's ssl gives it; empty without a certificate.

    >>> subject({"subject": ((("countryName", "DE"),), (("commonName", "pump-7"),))})
    'pump-7'
    """
    for part in (certificate or {}).get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return ""
