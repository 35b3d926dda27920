"""A node's streams: carries chunks from the sender to the receivers, and keeps those that may be sent again.

The machine in `reknit.protocol.streams.streams` counts, anycast decides where they go, and this module
holds the bytes and the connections.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from reknit.batch import Batch
from reknit.errors import InvalidTopic, MalformedFrame
from reknit.event import FLAG_STREAM
from reknit.node.peers.peers import PeerState
from reknit.node.streams.spill_buffer import Shelves
from reknit.outcome import Code, Outcome
from reknit.protocol.anycast.inputs import OfferEvents, Resolve, WithdrawStream
from reknit.protocol.machine import Peer
from reknit.protocol.streams import inputs as machines
from reknit.protocol.streams.streams import StreamMachine
from reknit.topic import check_topic
from reknit.wire.links import Return
from reknit.wire.messages import Message, Row
from reknit.wire.outcomes import Fate, Told
from reknit.wire.streams import Abort, Begin, Piece, Room

if TYPE_CHECKING:
    from reknit.node.node import Node

OVER: Final = "it is not under way any more"
DISTRIBUTIONS: Final = ("balanced", "closest")


class Here(msgspec.Struct, frozen=True):
    """Upstream of a stream that was begun on this node, for anycast."""

    source: bytes


class NodeStreams:
    """All streams of one node; `node.anycast.streams`."""

    def __init__(self, node: Node) -> None:
        settings = node.config.anycast
        self._node = node
        self._settings = settings
        is_disk = node.config.journal.kind == "disk"
        self.machine = self._new_machine()
        self.shelves = Shelves(
            settings.streams_held_bytes_max, node.config.node.data_dir if is_disk else None
        )
        self.topics: dict[bytes, str] = {}
        """Of the streams that are under way, by source."""
        self._ups: dict[bytes, Peer] = {}

    def status(self) -> dict[str, int]:
        """How many are under way, and what is kept of them."""
        shelves = self.shelves
        held = {"held_bytes": shelves.held_bytes, "spilled_bytes": shelves.spilled_bytes}
        return {"open": len(self.topics), **held}

    def _new_machine(self) -> StreamMachine:
        return StreamMachine(self._settings.stream_window_bytes, self._settings.stream_bytes_max)

    def close(self) -> None:
        """Let go of everything: what is under way ends with its connections."""
        self.machine = self._new_machine()
        self.topics.clear()
        self._ups.clear()
        self.shelves.close()

    # -- connections

    def take(self, item: Begin | Piece | Room | Abort, peer: PeerState) -> None:
        """From a publisher or a subscriber."""
        if isinstance(item, Begin):
            self._begin(item, peer)
        else:
            self._take(item, peer.id, (peer.id, item.sub))

    def take_from_node(self, item: Piece | Room | Abort, name: str) -> None:
        """From a neighbour."""
        self._take(item, name, name)

    def _take(self, item: Piece | Room | Abort, up: Peer, path: Peer) -> None:
        match item:
            case Piece(source=source, offset=offset, data=data, is_last=is_last):
                self.give(machines.ChunkReceived(source, offset, data, is_last), up)
            case Room(source=source, total=total):
                self.give_room(source, total, path)
            case Abort(source=source, text=text):
                self.give(machines.StreamAborted(source, text), up)

    def give_room(self, source: bytes, total: int, path: Peer) -> None:
        """A path takes more of a stream. If that was given up before it began to read, it hears so now."""
        if source in self.topics:
            self.give(machines.PathCredit(source, total), path)
        else:
            self._cut(path, source, OVER)

    def _begin(self, item: Begin, peer: PeerState) -> None:
        try:
            batch = Batch.parse(item.data)
            problem = self._node.core.inspect(peer.id, batch)
        except MalformedFrame as error:
            self._tell_client(peer.id, item.source, _refused(Code.INVALID_ARGUMENT, str(error)))
            return
        if (batch.source, batch.topic) != (item.source, item.topic):
            text = "a stream's event is not of the source and topic that it was begun with"
            self._tell_client(peer.id, item.source, _refused(Code.INVALID_ARGUMENT, text))
        elif problem is not None:
            self._tell_client(peer.id, item.source, _refused(problem.code, problem.text))
        else:
            self.begin(batch, item.resend, peer.id)

    def left(self, peer_id: int) -> None:
        """A connection is gone: nobody takes for a whole what it had begun to send."""
        self.give(machines.UpstreamGone(is_final=False), peer_id)

    def lost_node(self, name: str) -> None:
        """The link to a neighbour is gone."""
        self.give(machines.UpstreamGone(is_final=True), name)

    # -- beginning

    def begin(self, batch: Batch, resend: bool, up: Peer) -> None:
        """A stream from a client, or a gateway's `StreamSender`; its outcome is told there."""
        mode = self._node.anycast.mode(batch.topic)
        problem = self._problem(batch, mode)
        if problem is not None:
            self._tell_up(up, batch.source, _refused(*problem))
            return
        deadline = None
        if batch.head.ttl_ms:
            deadline = time.monotonic() + batch.head.ttl_ms / 1000
        self._open(batch, resend, up)
        self._node.anycast.give(OfferEvents(batch, mode, resend, deadline=deadline), Here(batch.source))

    def begin_from_node(self, batch: Batch, offered: OfferEvents, name: str) -> None:
        """A neighbour gives a stream; if there is no place for it here, the search goes on there."""
        problem = self._problem(batch, offered.mode)
        if problem is not None:
            fate = Fate(1, 2, Outcome.RELEASED, *problem, self._node.name, "", 0)
            visited = [*offered.visited, self._node.name]
            self._node.links.give_back(name, Return(batch.topic, batch.source, fate, visited))
            return
        self._open(batch, offered.resend, name)
        self._node.anycast.give(offered, name)

    def _problem(self, batch: Batch, mode: str) -> tuple[Code, str] | None:
        head = batch.head
        try:
            check_topic(head.topic)
        except InvalidTopic as error:
            return Code.INVALID_ARGUMENT, str(error)
        if not head.flags & FLAG_STREAM or (head.first, head.count) != (1, 1):
            return Code.INVALID_ARGUMENT, "a stream is one event, the first of its source"
        if mode not in DISTRIBUTIONS:
            text = f"{head.topic!r} is delivered as {mode}: streams need a topic that is balanced or closest"
            return Code.FAILED_PRECONDITION, text
        if batch.source in self.topics:
            return Code.ALREADY_EXISTS, f"a stream of source {batch.source.hex()} is under way"
        if len(self.topics) >= self._settings.streams_max:
            text = f"{self._settings.streams_max} streams are under way on the node (anycast.streams_max)"
            return Code.RESOURCE_EXHAUSTED, text
        return None

    def _open(self, batch: Batch, resend: bool, up: Peer) -> None:
        self.topics[batch.source], self._ups[batch.source] = batch.topic, up
        self.give(machines.StreamStarted(batch.source, resend), up)

    # -- anycast's side

    def handed(self, source: bytes, path: Peer) -> None:
        """It was given to a subscriber or a neighbour."""
        self.give(machines.PathAssigned(source), path)

    def tried(self, source: bytes) -> None:
        """An attempt at it ended."""
        self.give(machines.PathReleased(source), "")

    def resolved(self, effect: Resolve) -> None:
        """It has an outcome, or stays where it is."""
        source, up = effect.source, self._ups.get(effect.source)
        is_final = effect.fate.outcome != Outcome.RECEIVED
        if not isinstance(up, str):
            self._tell_up(up, source, effect.fate)
        self.give(machines.StreamSettled(source) if is_final else machines.StreamPinned(source), "")

    def checked(self, rows: list[Row]) -> list[Row]:
        """Outcomes of a subscriber: who accepts a stream before its end can't have had all of it."""
        return [
            msgspec.structs.replace(
                row, outcome=int(Outcome.MODIFIED), code=int(Code.UNKNOWN), text="it was accepted before its end came"
            )
            if row.outcome == Outcome.ACCEPTED and row.source in self.topics and not self.machine.is_sent(row.source)
            else row
            for row in rows
        ]  # fmt: skip

    # -- the machine

    def give(self, message: machines.Input, peer: Peer) -> None:
        """Tell the machine, and do what it wants."""
        self.machine.receive(message, peer, 0.0)
        while effects := self.machine.take_effects():
            for effect in effects:
                self._perform(effect)

    def _perform(self, effect: machines.Effect) -> None:
        match effect:
            case machines.StoreChunk() | machines.DiscardBefore() | machines.SendChunk():
                self._handle_bytes(effect)
            case machines.GrantUpstream(up=up, source=source, total=total):
                self._give_room(up, source, total)
            case machines.AbortDownstream(path=path, source=source, text=text):
                self._cut(path, source, text)
            case machines.AbandonStream(up=up, source=source, code=code, text=text):
                self._node.anycast.give(WithdrawStream(self.topics[source], source, text), "")
                self._give_up(up, source, code, text)
            case machines.ForgetStream(source=source):
                self.shelves.forget(source)
                self.topics.pop(source, None)
                self._ups.pop(source, None)

    def _handle_bytes(
        self, effect: machines.StoreChunk | machines.DiscardBefore | machines.SendChunk
    ) -> None:
        source = effect.source
        if source not in self.topics:
            return  # given up within this very turn
        try:
            match effect:
                case machines.StoreChunk(data=data):
                    self.shelves.put(source, data)
                case machines.DiscardBefore(stop=stop):
                    self.shelves.drop(source, stop)
                case machines.SendChunk():
                    self._convey(effect)
        except OSError as error:
            text = f"there is no place to keep it: {error.strerror or error}"
            self.give(machines.StorageFailed(source, Code.RESOURCE_EXHAUSTED, text), "")

    def _convey(self, effect: machines.SendChunk) -> None:
        for start in range(effect.start, max(effect.stop, effect.start + 1), machines.PIECE_BYTES):
            stop = min(start + machines.PIECE_BYTES, effect.stop)
            data = self.shelves.read(effect.source, start, stop)
            is_last = effect.is_last and stop == effect.stop
            self._send_piece(effect.path, effect.source, start, data, is_last)

    # -- telling

    def _send_piece(self, path: Any, source: bytes, offset: int, data: bytes, is_last: bool) -> None:
        if isinstance(path, tuple | str):
            self._send(path, lambda sub: Piece(sub, source, offset, data, is_last))
        else:
            path.streams.piece(source, offset, data, is_last)

    def _cut(self, path: Any, source: bytes, text: str) -> None:
        if isinstance(path, tuple | str):
            self._send(path, lambda sub: Abort(sub, source, text))
        else:
            path.streams.cut(source, text)

    def _send(self, path: tuple[int, int] | str, make: Any) -> None:
        if isinstance(path, str):
            self._node.links.say(path, make(0))
        elif (peer := self._node.peers.get(path[0])) is not None:
            message: Message = make(path[1])
            peer.send(message)

    def _give_room(self, up: Any, source: bytes, total: int) -> None:
        if isinstance(up, str):
            self._node.links.say(up, Room(0, source, total))
        elif not isinstance(up, int):
            up.room(total)
        elif (peer := self._node.peers.get(up)) is not None:
            peer.send(Room(0, source, total))

    def _give_up(self, up: Peer, source: bytes, code: int, text: str) -> None:
        """Tell upstream why nothing becomes of it; who gave it up itself knows."""
        if code == Code.OK:
            return
        fate = Fate(1, 2, Outcome.MODIFIED, code, text, self._node.name, "", 0)
        if isinstance(up, str):
            self._node.links.give_back(up, Return(self.topics[source], source, fate, []))
        else:
            self._tell_up(up, source, fate)

    def _tell_up(self, up: Any, source: bytes, fate: Fate) -> None:
        if isinstance(up, int):
            self._tell_client(up, source, fate)
        elif up is not None:
            up.tell(fate)

    def _tell_client(self, peer_id: int, source: bytes, fate: Fate) -> None:
        peer = self._node.peers.get(peer_id)
        if peer is not None:
            peer.send(Told(source, [fate]))


def _refused(code: int, text: str) -> Fate:
    return Fate(1, 2, Outcome.REJECTED, code, text, attempts=0)
