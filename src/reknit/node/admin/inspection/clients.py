"""Everyone who is connected, at every door: who, since when, from where, what they hold; and the order to end one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from reknit.errors import LocalError, Refused
from reknit.node.core.core import Core
from reknit.node.peers.peers import Peers, PeerState
from reknit.outcome import Code

LIMIT_MAX: Final = 1_000
STEP: Final = 500
PATTERNS_SHOWN_MAX: Final = 5
NODE: Final = "node"
"""The door of reknit's own protocol."""
Row = dict[str, Any]


class ClientDoor(Protocol):
    """A gateway with clients."""

    def clients(self) -> Iterable[tuple[int, Any]]:
        """Its connections, each with a number that is never used again."""

    def describe(self, client: Any) -> Row:
        """Who a client is, and what it holds."""

    def end_client(self, number: int, why: str) -> bool:
        """End a connection with a reason. False if it is gone."""


class Clients:
    """Lists the clients of one node, and ends one."""

    def __init__(
        self,
        core: Core,
        peers: Peers,
        doors: Mapping[str, Any],
        *,
        is_node: Callable[[str], bool],
        clock: Callable[[], float],
    ) -> None:
        self._core = core
        self._peers = peers
        self._doors = doors
        self._is_node = is_node
        self._clock = clock

    async def page(self, args: Mapping[str, Any]) -> Row:
        """A page of them, those that are there for longest first; `name` is a part of a name, identity or address."""
        limit, offset = int(args.get("limit", 100)), int(args.get("offset", 0))
        if not 0 <= limit <= LIMIT_MAX or offset < 0:
            raise LocalError(f"a page has 0 to {LIMIT_MAX} rows, not {limit} from {offset} on")
        wanted, kind = str(args.get("name") or "").lower(), str(args.get("door") or "")
        found: list[tuple[str, int, Any]] = []
        for door, number, client in self._every(kind):
            if wanted and wanted not in self._text(door, client):
                continue
            found.append((door, number, client))
            if len(found) % STEP == 0:
                await asyncio.sleep(0)
        chosen = found[offset : offset + limit]
        return {"count": len(found), "rows": [self._row(*one) for one in chosen]}

    def _every(self, kind: str) -> Iterable[tuple[str, int, Any]]:
        if kind in ("", NODE):
            yield from ((NODE, peer.id, peer) for peer in self._peers if not peer.connection.is_inside)
        for name, door in self._doors.items():
            if kind in ("", name):
                yield from ((name, number, client) for number, client in door.clients())

    def _text(self, door: str, client: Any) -> str:
        row = self._describe(door, client)
        return f"{row['name']} {row['identity']} {row['address']} {row['holds']}".lower()

    def _row(self, door: str, number: int, client: Any) -> Row:
        return {"id": f"{door}/{number}", "door": door, **self._describe(door, client)}

    def _describe(self, door: str, client: Any) -> Row:
        row: Row = self._peer(client) if door == NODE else self._doors[door].describe(client)
        return row

    def _peer(self, peer: PeerState) -> Row:
        queues = [queue for queue in self._core.dispatch.queues.values() if queue.peer == peer.id]
        patterns = [queue.name or queue.pattern.text for queue in queues]
        more = len(patterns) - PATTERNS_SHOWN_MAX
        told = [*patterns[:PATTERNS_SHOWN_MAX], *([f"and {more} more"] if more > 0 else [])]
        return {
            "name": peer.name,
            "identity": peer.identity,
            "address": peer.connection.peer.partition(":memory:")[0],
            "kind": "node" if peer.is_copier or self._is_node(peer.name) else "session",
            "since_s": round(self._clock() - peer.opened_at, 1),
            "holds": ", ".join(told),
            "unsettled": sum(queue.unsettled.count for queue in queues),
            "unsent_bytes": peer.held_bytes,
            "state": "does not read" if peer.is_blocked else "live",
        }

    def end(self, args: Mapping[str, Any]) -> Row:
        """End a connection (`connection`: its id). The client may connect again: what is durable stays its own."""
        door, _, number = str(args["connection"]).partition("/")
        why = "an operator ended this connection"
        if not number.isdigit():
            raise LocalError(f"{args['connection']!r} is not the id of a connection, such as node/7")
        is_ended = False
        if door == NODE:
            peer = self._peers.get(int(number))
            if peer is not None and not peer.connection.is_inside:
                peer.dismiss(Code.ABORTED, why)
                is_ended = True
        elif door in self._doors:
            is_ended = self._doors[door].end_client(int(number), why)
        if not is_ended:
            raise Refused(Code.NOT_FOUND, f"there is no connection {args['connection']!r}: it has ended")
        return {"count": 1}
