"""A node's streams: passes chunks from the sender to the receivers, and holds those that may be sent again.

The machine in `reknit.protocol.streams.streams` counts, anycast decides where they go, and this module
holds the bytes and the connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from reknit.batch import Batch
from reknit.config import Config
from reknit.errors import InvalidTopic, MalformedFrame
from reknit.event import FLAG_STREAM
from reknit.node.core.core import Core
from reknit.node.streams.room_quotas import RoomQuotas
from reknit.node.streams.spill_buffer import SpillBuffer
from reknit.outcome import Code, Outcome
from reknit.protocol.anycast.inputs import OfferEvents, Resolve, ReturnOutcome, WithdrawStream
from reknit.protocol.machine import Peer
from reknit.protocol.routing.routes import SendToNeighbour
from reknit.protocol.streams import inputs as machines
from reknit.protocol.streams.streams import StreamMachine
from reknit.topic import check_topic, is_reserved
from reknit.wire.links import Return
from reknit.wire.messages import DispositionRow, Message
from reknit.wire.outcomes import RangeOutcome, Told
from reknit.wire.streams import Abort, Begin, Piece, Room

OVER: Final = "the stream has ended"
DISTRIBUTIONS: Final = ("balanced", "closest")


class Here(msgspec.Struct, frozen=True):
    """The upstream of an anycast stream that began on this node."""

    source: bytes


class NodeStreams:
    """All streams of one node; `node.anycast.streams`. `distribution` says how a topic is distributed."""

    def __init__(
        self,
        *,
        config: Config,
        node_name: str,
        core: Core,
        distribution: Callable[[str], str],
        clock: Callable[[], float],
    ) -> None:
        self._settings = config.anycast
        self._node_name = node_name
        self._core = core
        self._parts = core.parts
        self._distribution = distribution
        self._now = clock
        self.machine = self._new_machine()
        is_disk = config.journal.kind == "disk"
        self.buffer = SpillBuffer(
            self._settings.streams_held_bytes_max, config.node.data_dir if is_disk else None
        )
        self.is_due = False
        """Never: effects are performed at once."""
        self.topics: dict[bytes, str] = {}
        """By source, of the streams that have not ended."""
        self._ups: dict[bytes, Peer] = {}
        self._room = RoomQuotas(core.quotas, self._say_room)

    def status(self) -> dict[str, int]:
        """How many are open, and how many bytes are held of them."""
        buffer = self.buffer
        held = {"held_bytes": buffer.held_bytes, "spilled_bytes": buffer.spilled_bytes}
        return {"open": len(self.topics), **held}

    def _new_machine(self) -> StreamMachine:
        return StreamMachine(self._settings.stream_window_bytes, self._settings.stream_bytes_max)

    def close(self) -> None:
        """Release everything: open streams end with their connections."""
        self.machine = self._new_machine()
        self.topics.clear()
        self._ups.clear()
        self.buffer.close()

    # -- a part of the core

    def perform(self, now: float) -> None:
        """Nothing waits here."""

    def tick(self, now: float) -> None:
        """Give room to publishers that waited for their quotas. Anycast expires events."""
        self._room.tick(now)

    def next_deadline(self) -> float | None:
        """When a publisher has waited long enough."""
        return self._room.next_deadline(self._now())

    def receive(self, message: Any, peer: Peer, now: float) -> None:
        """From a publisher or subscriber (a connection's id), a neighbour (its name), or another part."""
        match message:
            case Begin():
                self._begin(message, peer)
            case Piece() | Room() | Abort():
                self._take(message, peer, peer if isinstance(peer, str) else (peer, message.sub))
            case machines.OfferStream(offered=offered):
                self._begin_from_node(offered, str(peer))
            case machines.UpstreamGone() | machines.PathAssigned() | machines.PathReleased():
                self.give(message, peer)
            case Resolve():
                self._resolved(message)

    # -- connections

    def _take(self, item: Piece | Room | Abort, up: Peer, path: Peer) -> None:
        match item:
            case Piece(source=source, offset=offset, data=data, is_last=is_last):
                if isinstance(up, int):
                    self._room.charge(up, len(data), not offset, self._now())
                self.give(machines.ChunkReceived(source, offset, data, is_last), up)
            case Room(source=source, total=total):
                self.give_room(source, total, path)
            case Abort(source=source, text=text):
                self.give(machines.StreamAborted(source, text), up)

    def give_room(self, source: bytes, total: int, path: Peer) -> None:
        """A path takes more of a stream. If the stream was given up before the path began to read, it is told now."""
        if source in self.topics:
            self.give(machines.PathCredit(source, total), path)
        else:
            self._cut(path, source, OVER)

    def _begin(self, item: Begin, peer: Peer) -> None:
        try:
            batch = Batch.parse(item.data)
            problem = self._core.inspect(peer, batch)
        except MalformedFrame as error:
            self._tell_client(peer, item.source, _refused(Code.INVALID_ARGUMENT, str(error)))
            return
        if (batch.source, batch.topic) != (item.source, item.topic):
            text = "a stream's event must have the source and topic that the stream began with"
            self._tell_client(peer, item.source, _refused(Code.INVALID_ARGUMENT, text))
        elif problem is not None:
            self._tell_client(peer, item.source, _refused(problem.code, problem.text))
        else:
            self.begin(batch, item.resend, peer)

    # -- beginnings

    def begin(self, batch: Batch, resend: bool, up: Peer) -> None:
        """A stream from a client, or a gateway's `StreamSender`; its outcome is told there."""
        mode = self._distribution(batch.topic)
        problem = self._problem(batch, mode)
        if problem is not None:
            self._tell_up(up, batch.source, _refused(*problem))
            return
        deadline = None
        if batch.head.ttl_ms:
            deadline = self._now() + batch.head.ttl_ms / 1000
        self._open(batch, resend, up)
        self._parts.give(OfferEvents(batch, mode, resend, deadline=deadline), Here(batch.source), self._now())

    def _begin_from_node(self, offered: OfferEvents, name: str) -> None:
        """A neighbour forwards a stream; if this node can't take it, the neighbour tries its next path."""
        batch = offered.batch
        problem = self._problem(batch, offered.mode)
        if problem is not None:
            code, text = problem
            fate = RangeOutcome(1, 2, Outcome.RELEASED, code, text, self._node_name, attempts=0)
            visited = [*offered.visited, self._node_name]
            returned = ReturnOutcome(Return(batch.topic, batch.source, fate, visited))
            self._parts.give(returned, name, self._now())
            return
        self._open(batch, offered.resend, name)
        self._parts.give(offered, name, self._now())

    def _problem(self, batch: Batch, mode: str) -> tuple[Code, str] | None:
        head = batch.head
        try:
            check_topic(head.topic)
        except InvalidTopic as error:
            return Code.INVALID_ARGUMENT, str(error)
        if is_reserved(head.topic):
            return Code.PERMISSION_DENIED, f"only nodes write below reknit/, not {head.topic!r}"
        if not head.flags & FLAG_STREAM or (head.first, head.count) != (1, 1):
            return Code.INVALID_ARGUMENT, "a stream must be one event, the first of its source"
        if mode not in DISTRIBUTIONS:
            text = f"{head.topic!r} is delivered as {mode}: streams need a topic that is balanced or closest"
            return Code.FAILED_PRECONDITION, text
        if batch.source in self.topics:
            return Code.ALREADY_EXISTS, f"a stream of source {batch.source.hex()} is open already"
        if len(self.topics) >= self._settings.streams_max:
            text = f"{self._settings.streams_max} streams are open on the node (anycast.streams_max)"
            return Code.RESOURCE_EXHAUSTED, text
        return None

    def _open(self, batch: Batch, resend: bool, up: Peer) -> None:
        self.topics[batch.source], self._ups[batch.source] = batch.topic, up
        self.give(machines.StreamStarted(batch.source, resend), up)

    # -- effects of anycast

    def _resolved(self, effect: Resolve) -> None:
        """A stream has an outcome, or is not tried along another path."""
        source, up = effect.source, self._ups.get(effect.source)
        is_final = effect.fate.outcome != Outcome.RECEIVED
        if not isinstance(up, str):
            self._tell_up(up, source, effect.fate)
        self.give(machines.StreamSettled(source) if is_final else machines.StreamPinned(source), "")

    def checked(self, rows: list[DispositionRow]) -> list[DispositionRow]:
        """The dispositions of a subscriber. A subscriber that accepts a stream before its end can't have all of it."""
        return [
            msgspec.structs.replace(
                row, outcome=int(Outcome.MODIFIED), code=int(Code.UNKNOWN), text="it was accepted before its end arrived"
            )
            if row.outcome == Outcome.ACCEPTED and row.source in self.topics and not self.machine.is_sent(row.source)
            else row
            for row in rows
        ]  # fmt: skip

    # -- the machine

    def end_refused(self, may_stream: Callable[[Peer, str], bool]) -> None:
        """The rules have changed: end the streams that still arrive from clients that may not send them any more."""
        for source, up in list(self._ups.items()):
            topic = self.topics.get(source, "")
            if topic and not may_stream(up, topic):
                text = f"its sender may no longer publish on {topic!r}: the rules have changed"
                self.give(machines.StreamRefused(source, Code.PERMISSION_DENIED, text), up)

    def give(self, message: machines.Input, peer: Peer) -> None:
        """Feed the machine, and perform its effects."""
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
                self._parts.give(WithdrawStream(self.topics[source], source, text), "", self._now())
                self._give_up(up, source, code, text)
            case machines.ForgetStream(source=source):
                self.buffer.forget(source)
                self.topics.pop(source, None)
                self._ups.pop(source, None)
                self._room.forget(source)

    def _handle_bytes(
        self, effect: machines.StoreChunk | machines.DiscardBefore | machines.SendChunk
    ) -> None:
        source = effect.source
        if source not in self.topics:
            return  # given up in this turn
        try:
            match effect:
                case machines.StoreChunk(data=data):
                    self.buffer.put(source, data)
                case machines.DiscardBefore(stop=stop):
                    self.buffer.drop(source, stop)
                case machines.SendChunk():
                    self._convey(effect)
        except OSError as error:
            text = f"there is no room to store it: {error.strerror or error}"
            self.give(machines.StorageFailed(source, Code.RESOURCE_EXHAUSTED, text), "")

    def _convey(self, effect: machines.SendChunk) -> None:
        for start in range(effect.start, max(effect.stop, effect.start + 1), machines.PIECE_BYTES):
            stop = min(start + machines.PIECE_BYTES, effect.stop)
            data = self.buffer.read(effect.source, start, stop)
            is_last = effect.is_last and stop == effect.stop
            self._send_piece(effect.path, effect.source, start, data, is_last)

    # -- messages

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

    def _send(self, path: tuple[int, int] | str, make: Callable[[int], Message]) -> None:
        if isinstance(path, str):
            self._say_to_node(path, make(0))
        else:
            self._core.say(path[0], make(path[1]))

    def _say_to_node(self, name: str, message: Message) -> None:
        self._parts.give(SendToNeighbour(name, message), name, self._now())

    def _give_room(self, up: Any, source: bytes, total: int) -> None:
        if isinstance(up, str):
            self._say_to_node(up, Room(0, source, total))
        elif not isinstance(up, int):
            up.room(total)
        else:
            self._room.give(up, source, total, self._now())

    def _say_room(self, peer: Peer, source: bytes, total: int) -> None:
        self._core.say(peer, Room(0, source, total))

    def _give_up(self, up: Peer, source: bytes, code: int, text: str) -> None:
        """Tell the sender why a stream was given up, unless it gave it up itself."""
        if code == Code.OK:
            return
        fate = RangeOutcome(1, 2, Outcome.MODIFIED, code, text, self._node_name, "", 0)
        if isinstance(up, str):
            returned = ReturnOutcome(Return(self.topics[source], source, fate, []))
            self._parts.give(returned, up, self._now())
        else:
            self._tell_up(up, source, fate)

    def _tell_up(self, up: Any, source: bytes, fate: RangeOutcome) -> None:
        if isinstance(up, int):
            self._tell_client(up, source, fate)
        elif up is not None:
            up.tell(fate)

    def _tell_client(self, peer: Peer, source: bytes, fate: RangeOutcome) -> None:
        self._core.say(peer, Told(source, [fate]))


def _refused(code: int, text: str) -> RangeOutcome:
    return RangeOutcome(1, 2, Outcome.REJECTED, code, text, attempts=0)
