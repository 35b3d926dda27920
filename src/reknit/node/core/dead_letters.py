"""Dead letters: each is an event on the dead-letter topic, about an event that ended undelivered.

A dead letter is written before the outcome of its event, so that a crash leaves neither without the other. Anyone may
subscribe to the topic. A dead letter that can't be delivered does not lead to another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from reknit.batch import HEADER_BYTES, Batch, Head
from reknit.config import Config
from reknit.dead_letter import REDRIVEN, REDRIVEN_COUNT, DeadLetterContent
from reknit.entries import Entry
from reknit.errors import Gone
from reknit.frame import pad8
from reknit.ledger import HandledLetters
from reknit.lineage import lasting_source
from reknit.node.core.dead_letter_limits import WaitingDeadLetters
from reknit.private_topics import public_topic
from reknit.protocol.effects import DeadLetter
from reknit.records import DeadLettersDropped
from reknit.seqset import SeqSet
from reknit.store.journal import Journal

__all__ = ["DeadLetters"]

BATCH_EVENTS: Final = 1_000
"""How many dead letters go into one batch."""

_NO_HEAD: Final = Head(b"", "", 0, 0, 0, 0)
_encoder = msgspec.msgpack.Encoder()


class DeadLetters:
    """Writes a node's dead letters: one lasting source on one topic. Their number is bounded."""

    def __init__(self, node: str, config: Config, journal: Journal, now_us: Callable[[], int]) -> None:
        self.node = node
        self.topic = config.dispatch.dead_letter_topic
        self.source = lasting_source(f"{node}\0{self.topic}", journal.origin)
        self.journal = journal
        self.now_us = now_us
        self._config = config
        self._next_seq = journal.sources(self.topic).get(self.source, 0) + 1
        self.stops_intake = config.dispatch.dead_letters_full == "stop_intake"
        self._first = 1
        self._last: Batch | None = None
        self.waiting = WaitingDeadLetters(journal, (self.topic, self.source), config.limits)
        self.waiting.begin(self.letters.waiting(self.published))

    @property
    def letters(self) -> HandledLetters:
        """Which dead letters were redriven or dropped, as the journal records it."""
        return self.journal.ledger.letters.setdefault(self.source, HandledLetters())

    @property
    def published(self) -> SeqSet:
        """The seqs of all dead letters that were ever written."""
        return self.journal.ledger.published.get((self.topic, self.source), SeqSet())

    @property
    def is_full(self) -> bool:
        """Whether intake has to stop for everybody: see `dead_letter_guard.py` for what comes before that."""
        return self.stops_intake and self.waiting.is_over

    @property
    def full_text(self) -> str:
        """Which limit is reached."""
        return self.waiting.problem

    def floor(self) -> int | None:
        """The position of the oldest dead letter that waits: retention spares it."""
        letters, last = self.letters, 0
        while last != self._first:
            last = self._first
            self._first = letters.dropped.first_missing(letters.redriven.first_missing(last))
        found = self.journal.find(self.topic, self.source, self._first, self._first + 1)
        return found[0].position if found else None

    # -- writing

    def stage(self, letter: DeadLetter) -> bool:
        """Put dead letters for these events into the journal; False where the events are dead letters themselves.

        Raises `JournalFull`, and has done nothing then.
        """
        if letter.topic == self.topic:
            return False
        self._stage(list(self._written(letter)), letter)
        return True

    def stage_refused(self, batch: Batch, code: int, reason: str, text: str, attempts: int = 0) -> None:
        """The same for events that were refused, and so are not in the journal."""
        letter = DeadLetter(
            subscriber="",
            topic=batch.topic,
            source=batch.source,
            start=batch.first,
            stop=batch.stop,
            code=code,
            reason=reason,
            text=text,
            attempts=attempts,
        )
        self._stage(list(self._of_batch(letter, batch)), letter)

    def _stage(self, payloads: Sequence[bytes], letter: DeadLetter) -> None:
        now_us, seq = self.now_us(), self._next_seq
        batches: list[Batch] = []
        for at in range(0, len(payloads), BATCH_EVENTS):
            some = payloads[at : at + BATCH_EVENTS]
            batches.append(Batch.build(self.source, self.topic, seq, some, now_us))
            seq += len(some)
        self.journal.stage(b"".join(one.data for one in batches), [one.head for one in batches])
        self._next_seq = seq
        size = sum(one.head.length for one in batches)
        self.waiting.came(letter.topic, letter.source, len(payloads), size)
        if not self.stops_intake and self.waiting.problem:
            self._make_room(now_us)

    def _make_room(self, now_us: int) -> None:
        if ranges := self.waiting.too_many(self.letters.waiting(self.published)):
            self.drop(ranges, now_us)

    def drop(self, ranges: Sequence[tuple[int, int]], now_us: int) -> None:
        """Drop dead letters permanently. They stay readable as long as the journal holds them."""
        self.journal.stage_record(DeadLettersDropped(self.source, list(ranges), now_us))
        self.waiting.went(ranges)

    def _written(self, letter: DeadLetter) -> Iterator[bytes]:
        """Every event's dead letter, in order, also for events that retention removed, as far as they are known."""
        found = SeqSet()
        for entry in self.journal.find(letter.topic, letter.source, letter.start, letter.stop):
            try:
                batch = self._parsed(entry)
            except Gone:
                continue
            low, high = max(batch.first, letter.start), min(batch.stop, letter.stop)
            found.add(low, high)
            yield from self._of_batch(letter, batch, low, high)
        for start, stop in found.missing(letter.start, letter.stop):
            for seq in range(start, stop):
                yield self._encode(letter, seq, None, b"", {}, has_payload=False)

    def _parsed(self, entry: Entry) -> Batch:
        """A batch whose events end one by one is read once."""
        if self._last is None or self._last.position != entry.position:
            self._last = Batch.parse(self.journal.fetch(entry), position=entry.position)
        return self._last

    def _of_batch(
        self, letter: DeadLetter, batch: Batch, start: int = 0, stop: int = 1 << 63
    ) -> Iterator[bytes]:
        header = bytes(batch.data[: HEADER_BYTES + pad8(len(batch.topic.encode()))])
        keeps = self._config.topic(public_topic(batch.topic)).dead_letter_payload
        columns, payloads = batch.columns(), batch.payloads()
        for index in range(max(start - batch.first, 0), min(stop - batch.first, batch.count)):
            own = {name: values[index] for name, values in columns.items()}
            payload = payloads[index] if keeps else b""
            yield self._encode(letter, batch.first + index, batch, payload, own, keeps, header)

    def _encode(
        self,
        letter: DeadLetter,
        seq: int,
        batch: Batch | None,
        payload: bytes,
        columns: dict[str, Any],
        has_payload: bool,
        header: bytes = b"",
    ) -> bytes:
        head = batch.head if batch is not None else _NO_HEAD
        headers = columns.get("headers") or {}
        times = [one.time_us for one in letter.tries]
        return _encoder.encode(
            DeadLetterContent(
                letter.topic,
                letter.source,
                seq,
                columns.get("time", head.time_us),
                payload,
                letter.subscriber,
                letter.code,
                letter.reason,
                letter.text,
                letter.attempts,
                self.node,
                self.now_us(),
                header=header,
                columns=columns,
                priority=head.priority,
                type=head.type,
                flags=head.flags,
                ttl_ms=columns.get("ttl", head.ttl_ms),
                has_payload=has_payload,
                path=letter.path,
                tries=letter.tries,
                first_us=min(times, default=0),
                last_us=max(times, default=0),
                redriven=_count(headers),
                original=str(headers.get(REDRIVEN, "")),
            )
        )


def _count(headers: dict[str, Any]) -> int:
    text = str(headers.get(REDRIVEN_COUNT, ""))
    return int(text) if text.isdecimal() else int(REDRIVEN in headers)
