"""Addresses for replies: a client that attaches a dynamic terminus is given one."""

from __future__ import annotations

from reknit import environment

REPLIES = "reply"
"""The first segment of such addresses."""


class ReplyAddresses:
    """The reply addresses in use. Anyone may publish on them.

    >>> replies = ReplyAddresses()
    >>> address = replies.create()
    >>> address in replies, len(replies)
    (True, 1)
    """

    def __init__(self) -> None:
        self._addresses: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    def __contains__(self, address: str) -> bool:
        return address in self._addresses

    def create(self) -> str:
        """A new address that nobody can guess."""
        address = f"{REPLIES}/{environment.token_hex(12)}"
        self._addresses[address] = None
        return address

    def remove(self, address: str) -> None:
        """The link that the address was made for is gone."""
        self._addresses.pop(address, None)
