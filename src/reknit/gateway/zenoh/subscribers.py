"""Subscribers on both sides see each other: each is a liveliness token, as Zenoh's detectable subscribers are.

A subscriber of this node is a token `PATTERN/@adv/sub/ZID/EID/reknit-NODE`, while it is connected. Those of Zenoh's
advanced subscribers with `subscriber_detection` are in the node's status.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

import xxhash
import zenoh

from reknit.gateway.zenoh.entities import EID
from reknit.gateway.zenoh.keys import subscriber_key, subscriber_of
from reknit.gateway.zenoh.session import ZenohSession
from reknit.gateway.zenoh.threads import call

log = logging.getLogger("reknit.zenoh")

SHOWN_MAX: Final = 1_024
"""So many are shown on each side."""
LOOK_S: Final = 1.0
"""How often the node's subscribers are looked at."""

Subscriber = tuple[str, str]
"""The pattern of a subscriber, and its name or its connection's."""


class ZenohSubscribers:
    """Declares tokens for the node's subscribers, and knows those of Zenoh's."""

    def __init__(
        self,
        session: ZenohSession,
        node_name: str,
        present: Callable[[], Iterable[Subscriber]],
    ) -> None:
        self._session = session
        self._node_name = node_name
        self._present = present
        self._tokens: dict[Subscriber, zenoh.LivelinessToken] = {}
        self._lock = threading.Lock()
        self._others: dict[str, dict[str, str]] = {}

    def all(self) -> list[Any]:
        """Everything that is declared."""
        return list(self._tokens.values())

    def others(self) -> list[dict[str, str]]:
        """Zenoh's detectable subscribers."""
        with self._lock:
            return [self._others[key] for key in sorted(self._others)]

    def on_token(self, token: zenoh.Sample) -> None:
        """On a reader's thread: a subscriber of the Zenoh network came or went."""
        key = str(token.key_expr)
        found = subscriber_of(key)
        if found is None or found.node == self._node_name:
            return
        with self._lock:
            if token.kind != zenoh.SampleKind.PUT:
                self._others.pop(key, None)
            elif len(self._others) < SHOWN_MAX:
                self._others[key] = {"pattern": found.key, "zid": found.zid, "node": found.node}

    async def show(self) -> None:
        """Keep the tokens of the node's subscribers up to date, until cancelled."""
        while True:
            wanted = dict.fromkeys(list(self._present())[:SHOWN_MAX])
            if wanted.keys() != self._tokens.keys():
                try:
                    await call(self._declare, list(wanted))
                except (TimeoutError, zenoh.ZError) as error:
                    log.warning(
                        "subscribers are not shown in Zenoh: %s", str(error) or "Zenoh does not answer"
                    )
            await asyncio.sleep(LOOK_S)

    def _declare(self, wanted: list[Subscriber]) -> None:
        for gone in self._tokens.keys() - set(wanted):
            self._tokens.pop(gone).undeclare()  # type: ignore[no-untyped-call]
        for one in wanted:
            if one not in self._tokens and not self._session.is_leaving:
                pattern, name = one
                zid = xxhash.xxh3_128_hexdigest(f"{self._node_name}\0{name}".encode()).lstrip("0")
                self._tokens[one] = self._session.token(subscriber_key(pattern, zid, EID, self._node_name))
