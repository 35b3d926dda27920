"""A connection to the node, as far as resources need it."""

from __future__ import annotations

from typing import Any, Protocol


class Asking(Protocol):
    """Makes requests with the rights of one operator."""

    async def ask(self, what: str, **args: Any) -> Any:
        """Make an admin request. Raises `Refused`, `NotConnected`."""

    async def ask_raw(self, what: str, **args: Any) -> tuple[Any, bytes]:
        """The same, with the bytes that come with the answer."""

    async def ask_node(self, url: str, what: str, **args: Any) -> Any:
        """Ask another node of the fabric, with the same token."""

    async def publish(
        self, topic: str, payload: bytes, *, ttl_ms: int = 0, columns: dict[str, list[Any]] | None = None
    ) -> str:
        """Publish an event from a source of one's own; returns its id once it is stored. Raises `Refused`."""
