"""Finds events on some topics by what is in them: text, key, headers, message id, time. The newest come first.

The journal has no index for these, so a search reads the sources of the topics one after the other, each from its end
backwards. One answer takes some milliseconds and says where to continue; whoever asks can stop at any time.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

import msgspec

from reknit.batch import Batch, Event
from reknit.envelope.columns import ID
from reknit.errors import Gone, LocalError
from reknit.ledger import Series
from reknit.ledger.topics import TopicTotals
from reknit.store.journal import Readable
from reknit.topic import Pattern

EVENTS_MAX: Final = 20_000
"""How many events one answer looks at, about."""
BYTES_MAX: Final = 4 << 20
"""How many bytes of batches it reads, about."""
SERIES_MAX: Final = 2_000
"""How many sources it looks at."""
STEP_SEQS: Final = 4_000
FOUND_MAX: Final = 200
PAYLOAD_SHOWN_MAX: Final = 2_000
SPREAD_US: Final = 3_600_000_000
"""Events of one batch were published within this time of the one that its header names."""


class Wanted(msgspec.Struct, frozen=True):
    """What is looked for. An event fits if it fits every field that is set."""

    topic: str
    """A pattern."""
    text: str = ""
    """In the payload, as UTF-8."""
    key: str = ""
    header: str = ""
    """`name` or `name=value`."""
    id: str = ""
    """The message id: an attribute, or a header of that name."""
    since_us: int = 0
    until_us: int = 0

    def fits(self, event: Event, needle: bytes) -> bool:
        """Whether an event fits."""
        if self.since_us > event.time_us or 0 < self.until_us <= event.time_us:
            return False
        if needle and needle not in event.payload:
            return False
        if self.key and event.key != self.key:
            return False
        if self.header and not self._has_header(event.headers):
            return False
        return not self.id or self.id in _ids(event)

    def _has_header(self, headers: Mapping[str, Any]) -> bool:
        name, _, value = self.header.partition("=")
        return name in headers and (not value or str(headers[name]) == value)


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a search goes on: before a seq of a series."""

    topic: str
    source: str
    stop: int


def search(journal: Readable, args: Mapping[str, Any]) -> dict[str, Any]:
    """A part of a search: `found`, how many events were `seen` of how many (`total`), and `next`, None at the end."""
    check(args)
    wanted = msgspec.convert({name: args[name] for name in Wanted.__struct_fields__ if name in args}, Wanted)
    limit = min(int(args.get("limit", 50)), FOUND_MAX)
    place = msgspec.convert(args["place"], Place) if args.get("place") else None
    part = _Part(journal, wanted, limit)
    after = part.run(place)
    topics = journal.ledger.topics
    pattern = Pattern(wanted.topic)
    total = sum(topics.get(name, TopicTotals()).events for name in journal.ledger.series.topics(pattern))
    return {
        "found": part.found,
        "seen": part.seen,
        "total": total,
        "next": None if after is None else msgspec.to_builtins(after),
    }


class _Part:
    """One answer's share of a search."""

    def __init__(self, journal: Readable, wanted: Wanted, limit: int) -> None:
        self._journal = journal
        self._wanted = wanted
        self._needle = wanted.text.encode()
        self._limit = limit
        self._read = self._series = 0
        self.found: list[dict[str, Any]] = []
        self.seen = 0

    def run(self, place: Place | None) -> Place | None:
        """Go on from a place; returns the next one."""
        for (topic, source), stop in self._from(place):
            while stop > 1:
                if self._is_full:
                    return Place(topic, source.hex(), stop)
                stop = self._step(topic, source, stop)
            self._series += 1
        return None

    @property
    def _is_full(self) -> bool:
        is_read = self.seen >= EVENTS_MAX or self._read >= BYTES_MAX or self._series >= SERIES_MAX
        return is_read or len(self.found) >= self._limit

    def _from(self, place: Place | None) -> Iterator[tuple[Series, int]]:
        """The sources that are left, each with the seq before which to look."""
        journal = self._journal
        start = None if place is None else (place.topic, place.source)
        for topic in journal.ledger.series.topics(Pattern(self._wanted.topic)):
            if start is not None and topic < start[0]:
                continue
            for source, last in sorted(journal.sources(topic).items()):
                if start is None or (topic, source.hex()) > start:
                    yield (topic, source), last + 1
                elif (topic, source.hex()) == start and place is not None:
                    yield (topic, source), place.stop

    def _step(self, topic: str, source: bytes, stop: int) -> int:
        """Look at some events before a seq; returns the seq before which to continue."""
        journal = self._journal
        low = max(journal.first_held(topic, source), stop - STEP_SEQS)
        if low >= stop:
            return 0
        for entry in reversed(journal.find(topic, source, low, stop)):
            if entry.head.time_us + SPREAD_US < self._wanted.since_us:
                return 0  # all events before it are older
            try:
                batch = Batch.parse(journal.fetch(entry))
            except Gone:
                return 0
            self._read += entry.head.length
            first, above = max(low, batch.first), min(stop, batch.stop)
            stop_at = self._look(batch, first, above)
            if stop_at is not None:
                return stop_at
            if self.seen >= EVENTS_MAX or self._read >= BYTES_MAX:
                return first
        return low if low > journal.first_held(topic, source) else 0

    def _look(self, batch: Batch, start: int, stop: int) -> int | None:
        """Look at events of a batch, the newest first. Returns where it stopped, if enough were found."""
        if self._needle and not any(self._needle in one for one in batch.payloads()):
            self.seen += stop - start
            return None
        events = batch.events()
        for event in reversed(events[start - batch.first : stop - batch.first]):
            self.seen += 1
            if self._wanted.fits(event, self._needle):
                self.found.append(shown(event))
                if len(self.found) >= self._limit:
                    return event.seq
        return None


def _ids(event: Event) -> tuple[str, ...]:
    """The message ids of an event."""
    raw = event.batch.columns().get(ID)
    value = None if raw is None else raw[event.seq - event.batch.first]
    named = str(event.headers.get("message-id") or event.headers.get("id") or "")
    attribute = "" if not isinstance(value, bytes) else _uuid(value)
    return tuple(one for one in (named, attribute) if one)


def _uuid(value: bytes) -> str:
    return str(UUID(bytes=value)) if len(value) == 16 else value.hex()


def shown(event: Event) -> dict[str, Any]:
    """An event in a list: its payload is cut."""
    payload = event.payload[:PAYLOAD_SHOWN_MAX]
    try:
        body: dict[str, Any] = {"text": payload.decode()}
    except UnicodeDecodeError:
        body = {"base64": base64.b64encode(payload).decode()}
    return {
        "topic": event.topic,
        "id": f"{event.source.hex()}:{event.seq}",
        "time_us": event.time_us,
        "key": event.key,
        "headers": event.headers,
        "payload": {"bytes": len(event.payload), **body},
    }


def check(args: Mapping[str, Any]) -> None:
    """Raises `LocalError` where nothing is looked for."""
    if not any(args.get(name) for name in ("text", "key", "header", "id", "since_us", "until_us")):
        raise LocalError("say what to look for: text, key, header, id, since_us or until_us")
