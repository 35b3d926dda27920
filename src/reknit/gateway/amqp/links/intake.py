"""How much of one client's messages the gateway holds, and whether it takes more."""

from __future__ import annotations

from collections.abc import Callable

from reknit.config import AmqpSettings


class ClientIntake:
    """Bytes of messages without an outcome, and bytes of messages that are still arriving, on all links of a client.

    `on_settled` is called when messages have their outcome, `on_room` when the client may send again.
    """

    def __init__(
        self, settings: AmqpSettings, *, on_room: Callable[[], None], on_settled: Callable[[], None]
    ) -> None:
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
        return self._bytes_max - self._held_bytes

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

    def hold(self, size: int) -> None:
        """Messages of this many bytes were taken."""
        self._held_bytes += size

    def release(self, size: int) -> None:
        """Messages of this many bytes have their outcome."""
        was_full = self.room <= 0
        self._held_bytes -= size
        self._on_settled()
        if was_full and self.room > 0:
            self._on_room()
