"""Questions to caches over one connection, and how their answers find back to who asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from reknit.batch import Batch
from reknit.ledger import Stream
from reknit.protocol.machine import Peer
from reknit.seqset import Range
from reknit.wire.announced import Announced
from reknit.wire.codec import Frames
from reknit.wire.recovery import Recover, Recovered, Span, Survey, Surveyed


class Asker(Protocol):
    """Who asks caches."""

    def found(self, cache: Peer, batches: list[Batch]) -> None:
        """A cache sent these."""

    def answered(self, cache: Peer, number: int, covered: Sequence[Range], is_last: bool) -> None:
        """A cache has said all about these ranges."""

    def told(self, cache: Peer, number: int, spans: Sequence[Span], is_last: bool) -> None:
        """A cache said what it holds."""

    def unreachable(self, cache: Peer) -> None:
        """A cache can't be asked for now."""


class Inquiries:
    """The questions that are open on one connection."""

    def __init__(self) -> None:
        self._asked: dict[int, tuple[Asker, Peer, int]] = {}
        self._count = 0
        self._announced: Announced[Recovered] = Announced()

    def recover(
        self,
        asker: Asker,
        cache: Peer,
        number: int,
        stream: Stream,
        ranges: list[Range],
        bytes_max: int,
        deep: bool,
    ) -> Recover:
        """The message that asks for ranges."""
        return Recover(self._note(asker, cache, number), *stream, ranges, bytes_max, deep)

    def survey(
        self, asker: Asker, cache: Peer, number: int, pattern: str, age_s: float, deep: bool
    ) -> Survey:
        """The message that asks what there is."""
        return Survey(self._note(asker, cache, number), pattern, age_s, deep)

    def _note(self, asker: Asker, cache: Peer, number: int) -> int:
        self._count += 1
        self._asked[self._count] = (asker, cache, number)
        return self._count

    def take(self, message: Recovered | Surveyed) -> None:
        """An answer; the batches that it announces follow as frames."""
        if isinstance(message, Surveyed):
            if (who := self._who(message.id, message.is_last)) is not None:
                asker, cache, number = who
                asker.told(cache, number, message.spans, message.is_last)
        elif message.size > 0:
            self._announced.announce(message)
        else:
            self._end(message)

    def take_frames(self, frames: Frames) -> Frames | None:
        """Take what belongs to an answer; gives the rest, which is none of it."""
        answer = self._announced.message
        if answer is None:
            return frames
        at = 0
        batches: list[Batch] = []
        for index, head in enumerate(frames.heads):
            if self._announced.take(head.length) is None:
                self._hand(answer, batches)
                return Frames(frames.data[at:], frames.heads[index:])
            data = memoryview(frames.data)[at : at + head.length]
            batches.append(Batch(head, data, whole=(frames.data, at)))
            at += head.length
        self._hand(answer, batches)
        return None

    def _hand(self, answer: Recovered, batches: list[Batch]) -> None:
        asked = self._asked.get(answer.id)
        if asked is not None:
            asked[0].found(asked[1], batches)
        if self._announced.message is None:
            self._end(answer)

    def _end(self, answer: Recovered) -> None:
        if (who := self._who(answer.id, answer.is_last)) is not None:
            asker, cache, number = who
            asker.answered(cache, number, answer.covered, answer.is_last)

    def _who(self, id_: int, is_last: bool) -> tuple[Asker, Peer, int] | None:
        return self._asked.pop(id_, None) if is_last else self._asked.get(id_)

    def forget(self, asker: Asker) -> None:
        """Who asked is gone."""
        self._asked = {id_: who for id_, who in self._asked.items() if who[0] is not asker}

    def lost(self) -> None:
        """The connection is gone, and with it the answers: everyone who waits is told."""
        asked, self._asked = self._asked, {}
        self._announced.clear()
        told: set[tuple[int, Peer]] = set()
        for asker, cache, _ in asked.values():
            if (id(asker), cache) not in told:
                told.add((id(asker), cache))
                asker.unreachable(cache)
