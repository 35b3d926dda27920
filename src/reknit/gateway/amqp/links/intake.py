"""How much of one client's messages the gateway holds, and whether it takes more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from reknit.config import AmqpSettings
from reknit.gateway.publish_pace import PublishPace


class ClientIntake:
    """Bytes of messages without an outcome, and bytes of messages that are still arriving, on all links of a client.

    `on_settled` is called when messages have their outcome, `on_room` when the client may send again.
    """

    def __init__(
        self,
        settings: AmqpSettings,
        *,
        on_room: Callable[[], None],
        on_settled: Callable[[], None],
        pace: PublishPace,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._pace = pace
        self._loop = loop
        self._user = ""
        self._is_waiting = False
        """Whether the client has published as much as its quota allows for now."""
        self._bytes_max = settings.intake_bytes_max
        self._assembly_bytes_max = settings.assembly_bytes_max
        self._on_room = on_room
        self._on_settled = on_settled
        self._held_bytes = 0
        self._assembly_bytes = 0
        self.is_stopping = False
        """Whether the node stops, and takes no more messages."""

    @property
    def room(self) -> int:
        """How many more bytes the client may send before its messages have outcomes."""
        return 0 if self._is_waiting else self._bytes_max - self._held_bytes

    @property
    def assembly_bytes(self) -> int:
        """How many bytes of messages came that are still arriving."""
        return self._assembly_bytes

    @property
    def is_assembly_full(self) -> bool:
        """Whether more bytes are still arriving than `amqp.assembly_bytes_max`."""
        return self._assembly_bytes > self._assembly_bytes_max

    def stop(self) -> None:
        """Take no more messages."""
        self.is_stopping = True

    def assemble(self, size: int) -> None:
        """This many more bytes (fewer if negative) belong to messages that are still arriving."""
        self._assembly_bytes += size

    def identified(self, user: str) -> None:
        """The client is known: its messages count for this identity."""
        self._user = user

    @property
    def is_waiting(self) -> bool:
        """Whether the client has to wait before more of its messages is read."""
        return self._is_waiting

    def hold(self, size: int, count: int) -> None:
        """So many messages of this many bytes were taken, and have no outcome yet."""
        self._held_bytes += size
        self.charge(size, count)

    def charge(self, size: int, count: int) -> None:
        """The client published so many messages, or parts of one, of this many bytes."""
        delay_s = self._pace.charge(self._user, count, size)
        if delay_s > 0 and not self._is_waiting:
            self._is_waiting = True
            self._loop.call_later(delay_s, self._waited)

    def _waited(self) -> None:
        """Time passed: the client may send again, unless others of its identity have."""
        delay_s = self._pace.delay_s(self._user)
        if delay_s > 0:
            self._loop.call_later(delay_s, self._waited)
            return
        self._is_waiting = False
        if self.room > 0:
            self._on_room()

    def release(self, size: int) -> None:
        """Messages of this many bytes have their outcome."""
        was_full = self.room <= 0
        self._held_bytes -= size
        self._on_settled()
        if was_full and self.room > 0:
            self._on_room()
