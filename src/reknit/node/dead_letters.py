"""Dead letters: an event that ended undelivered, as an event of its own on the dead-letter topic."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
import xxhash

from reknit.batch import Batch
from reknit.protocol.effects import DeadLetter
from reknit.store.journal import Journal


class Letter(msgspec.Struct, frozen=True):
    """What a dead letter says. Its payload is the undelivered event's, as it was."""

    topic: str
    source: bytes
    seq: int
    time_us: int
    payload: bytes
    subscriber: str
    code: int
    reason: str
    text: str
    attempts: int
    node: str
    died_us: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Letter)


def read_letter(payload: bytes) -> Letter:
    """The dead letter in an event's payload. Raises `msgspec.DecodeError` for anything else."""
    return _decoder.decode(payload)


def time_us() -> int:
    """The time of day in microseconds since 1970."""
    return time.time_ns() // 1000


class DeadLetters:
    """Writes a node's dead letters: one lasting source on one topic."""

    def __init__(self, node: str, topic: str, journal: Journal, now_us: Callable[[], int] = time_us) -> None:
        self.topic = topic
        self.node = node
        self.source = xxhash.xxh3_128_digest(f"{node}\0{topic}".encode())
        self._journal = journal
        self._now_us = now_us
        self._next_seq = journal.sources(topic).get(self.source, 0) + 1

    def write(self, letter: DeadLetter) -> Batch | None:
        """The batch to append for these events; None where the letter is about dead letters, which end here."""
        if letter.topic == self.topic:
            return None
        payloads: list[bytes] = []
        for entry in self._journal.find(letter.topic, letter.source, letter.start, letter.stop):
            batch = Batch.parse(self._journal.fetch(entry)).cut(letter.start, letter.stop)
            payloads += [
                self._encode(letter, batch.time_us, seq, payload) for seq, payload in self._events(batch)
            ]
        if not payloads:
            return None
        batch = Batch.build(self.source, self.topic, self._next_seq, payloads, self._now_us())
        self._next_seq = batch.stop
        return batch

    def write_refused(self, batch: Batch, code: int, reason: str, text: str) -> Batch:
        """The batch to append for events that were never taken in, and so are in no journal."""
        letter = DeadLetter("", batch.topic, batch.source, batch.first, batch.stop, code, reason, text, 0)
        payloads = [self._encode(letter, batch.time_us, seq, payload) for seq, payload in self._events(batch)]
        made = Batch.build(self.source, self.topic, self._next_seq, payloads, self._now_us())
        self._next_seq = made.stop
        return made

    def _events(self, batch: Batch) -> list[tuple[int, bytes]]:
        return [(event.seq, event.payload) for event in batch.events()]

    def _encode(self, letter: DeadLetter, published_us: int, seq: int, payload: bytes) -> bytes:
        why = (letter.subscriber, letter.code, letter.reason, letter.text, letter.attempts)
        return _encoder.encode(
            Letter(letter.topic, letter.source, seq, published_us, payload, *why, self.node, self._now_us())
        )
