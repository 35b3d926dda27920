"""The files in which clients record what they did: lines that are appended before a client goes on.

A payload is `publisher:number:padding`. So a client can say which events it got without asking anyone for seqs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reknit.seqset import SeqSet

STOP = "stop"
"""Publishers finish their work when a file of this name is in their folder."""
DONE = "done"
PADDING = b"." * 80


def payload(publisher: str, number: int) -> bytes:
    """The payload of an event.

    >>> payload("p1", 7)[:8]
    b'p1:7:...'
    """
    return b"%s:%d:%s" % (publisher.encode(), number, PADDING)


def parse(data: bytes) -> tuple[str, int]:
    """The publisher and number of a payload.

    >>> parse(payload("p1", 7))
    ('p1', 7)
    """
    publisher, number, _ = data.split(b":", 2)
    return publisher.decode(), int(number)


def runs(payloads: Sequence[bytes]) -> Iterator[tuple[int, int, str, int]]:
    """Payloads with consecutive numbers of one publisher: (index, length, publisher, first number).

    >>> list(runs([payload("p", 1), payload("p", 2), payload("p", 5)]))
    [(0, 2, 'p', 1), (2, 1, 'p', 5)]
    """
    begin, publisher, first = 0, "", 0
    for index, (name, number) in enumerate(map(parse, payloads)):
        if index and (name, number) != (publisher, first + index - begin):
            yield begin, index - begin, publisher, first
            begin = index
        if index == begin:
            publisher, first = name, number
    if payloads:
        yield begin, len(payloads) - begin, publisher, first


class RecordFile:
    """A file that a client appends lines to. What it wrote survives its own kill -9."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, *words: object) -> None:
        """Append a line."""
        os.write(self._fd, (" ".join(map(str, words)) + "\n").encode())

    @property
    def is_stopping(self) -> bool:
        """Whether publishers are to finish."""
        return (self.path.parent / STOP).exists()


def lines(path: Path) -> list[list[str]]:
    """The lines of a record, as words. The last one may be incomplete while its client writes, and is left out."""
    if not path.exists():
        return []
    text = path.read_text()
    return [line.split(" ") for line in text[: text.rfind("\n") + 1].splitlines()]


@dataclass
class Published:
    """What a publisher recorded."""

    last: int = 0
    """Every event up to this number is stored, as the publisher was told."""
    is_done: bool = False
    outcomes: dict[int, str] = field(default_factory=dict)
    """Of a publisher that waits for outcomes, by number."""
    complaints: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Published:
        """Read a record."""
        found = cls()
        for kind, *words in lines(path):
            match kind, words:
                case "stored", [number]:
                    found.last = int(number)
                case "outcome", [number, outcome]:
                    found.outcomes[int(number)] = outcome
                case "complaint", _:
                    found.complaints.append(" ".join(words))
                case "done", []:
                    found.is_done = True
        return found


@dataclass
class Received:
    """What a subscriber or a reader recorded."""

    numbers: dict[str, SeqSet] = field(default_factory=dict)
    """By publisher."""
    ids: dict[str, dict[str, SeqSet]] = field(default_factory=dict)
    """Seqs by topic and source."""
    lost: dict[str, dict[str, SeqSet]] = field(default_factory=dict)
    """Seqs that it was told are lost, by topic and source."""
    repeated: int = 0
    """Events that it got more than once."""
    breaks: int = 0
    """How often a reader was told that it can't resume."""
    complaints: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Received:
        """Read a record."""
        found = cls()
        for kind, *words in lines(path):
            match kind, words:
                case "got", [topic, source, first, publisher, number, count]:
                    found._got(topic, source, int(first), int(count))
                    numbers = found.numbers.setdefault(publisher, SeqSet())
                    numbers.add(int(number), int(number) + int(count))
                case "lost", [topic, source, start, stop, _]:
                    found.lost.setdefault(topic, {}).setdefault(source, SeqSet()).add(int(start), int(stop))
                case "read", [publisher, number, _]:
                    numbers = found.numbers.setdefault(publisher, SeqSet())
                    found.repeated += int(number) in numbers
                    numbers.add(int(number), int(number) + 1)
                case "broken", _:
                    found.breaks += 1
                    found.numbers.clear()
                case "complaint", _:
                    found.complaints.append(" ".join(words))
        return found

    def _got(self, topic: str, source: str, first: int, count: int) -> None:
        seqs = self.ids.setdefault(topic, {}).setdefault(source, SeqSet())
        before = seqs.count
        seqs.add(first, first + count)
        self.repeated += count - (seqs.count - before)

    def count_on(self, topic: str) -> int:
        """How many different events it got on a topic."""
        return sum(seqs.count for seqs in self.ids.get(topic, {}).values())

    def lost_on(self, topic: str) -> int:
        """How many events on a topic it was told are lost."""
        return sum(seqs.count for seqs in self.lost.get(topic, {}).values())
