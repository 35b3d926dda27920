"""Which of Zenoh's publishers are reknit gateways, and of which nodes: their tokens say it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from reknit.gateway.zenoh.entities import EID
from reknit.gateway.zenoh.keys import ADV, Publisher, publisher_of
from reknit.gateway.zenoh.samples import LastNumber, ZenohSample
from reknit.gateway.zenoh.session import ZenohSession
from reknit.gateway.zenoh.threads import call

KNOWN_MAX: Final = 1_000_000


class KnownGateways:
    """By key and session id of a publisher: its node; empty for publishers that are no gateways."""

    def __init__(self, session: ZenohSession) -> None:
        self._session = session
        self._known: dict[tuple[str, str], str] = {}

    def learn(self, publisher: Publisher) -> None:
        """A publisher's token is there. May be called on any thread."""
        if publisher.node and len(self._known) < KNOWN_MAX:
            self._known[publisher.key, publisher.zid] = publisher.node

    async def nodes_of(self, found: Sequence[ZenohSample | LastNumber]) -> dict[tuple[str, str], str]:
        """The nodes of those that come from gateways. A token may have been overtaken: then Zenoh is asked."""
        nodes: dict[tuple[str, str], str] = {}
        for key, zid in _entities(found):
            node = self._known.get((key, zid))
            if node is None:
                tokens = await call(self._session.tokens, f"{key}{ADV}pub/{zid}/{EID}/**")
                named = [one for one in map(publisher_of, tokens) if one is not None and one.node]
                node = named[0].node if named else ""
                if len(self._known) < KNOWN_MAX:
                    self._known[key, zid] = node
            nodes[key, zid] = node
        return nodes


def _entities(found: Iterable[ZenohSample | LastNumber]) -> set[tuple[str, str]]:
    """Those that may be gateways' publishers."""
    return {(one.key, one.origin.zid) for one in found if one.origin is not None and one.origin.eid == EID}
