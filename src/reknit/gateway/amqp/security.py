"""Authentication: users and passwords from a file, and certificates."""

from __future__ import annotations

import asyncio

from reknit.config import AmqpSettings
from reknit.config.credentials import read_credentials
from reknit.gateway.amqp.sasl import SaslServer
from reknit.transport.servers import common_name
from reknit.transport.tls import Refuse, server_tls


class AmqpSecurity:
    """Reads the settings once. Raises `InvalidConfig`."""

    def __init__(self, settings: AmqpSettings, refuse: Refuse) -> None:
        self._settings = settings
        self._users = read_credentials(settings.users_file, "amqp.users_file", "password")
        self.tls = server_tls(settings, refuse)

    def sasl(self, transport: asyncio.Transport) -> SaslServer:
        """The SASL exchange for a new connection. PLAIN needs TLS unless the settings say otherwise."""
        is_open = self.tls is None and self._settings.plain_needs_tls
        mechanisms = [one for one in self._settings.mechanisms if one != "PLAIN" or not is_open]
        return SaslServer(mechanisms, self._users, common_name(transport.get_extra_info("peercert")))
