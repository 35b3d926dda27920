"""Admin requests about dead letters: list them page by page, redrive them, drop them.

A redrive records its dead letters before it publishes their events, in one piece of the log. A crash between the two is
noticed on the next start, and the dead letters wait again: so each is published exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from reknit import environment
from reknit.batch import Batch
from reknit.dead_letter import DeadLetterContent, DeadLetterFilter, read_letter
from reknit.envelope.columns import ID
from reknit.envelope.ids import make_id
from reknit.errors import Gone, JournalFull
from reknit.ledger import ANYCAST
from reknit.lineage import lasting_source
from reknit.node.core.dead_letters import DeadLetters
from reknit.outcome import Code
from reknit.private_topics import private_topic, public_topic
from reknit.records import DeadLettersBack, DeadLettersRedriven, encode
from reknit.seqset import Range, SeqSet
from reknit.topic import TOPIC_BYTES_MAX, Pattern

PAGE_MAX: Final = 1_000
SCAN_MAX: Final = 2_000
"""How many dead letters are read for one answer, so that no answer takes long."""
SCAN_BYTES_MAX: Final = 2 << 20
"""How many bytes of events are read for one answer, apart from the last event."""
TOPICS_MAX: Final = 100
"""How many topics one answer redrives events on: each gets a batch of its own."""
Found = tuple[int, DeadLetterContent]


class DeadLetterAdmin:
    """Lists, redrives and drops the dead letters of one node."""

    def __init__(self, letters: DeadLetters) -> None:
        self._letters = letters
        self._published: dict[bytes, int] = {}
        """By source: the seq before which its events were published, since `take_published`."""
        self._put_back_torn()

    def _put_back_torn(self) -> None:
        """A redrive whose events never reached the disk did not happen."""
        last = self._letters.letters.last
        if last is None:
            return
        published = self._letters.journal.ledger.published.get((last.topic, last.source), SeqSet())
        if not published.covers(last.first, last.stop):
            self._back(last.ranges)

    def _back(self, ranges: list[Range]) -> None:
        letters = self._letters
        letters.journal.stage_record(DeadLettersBack(letters.source, ranges, letters.now_us()))
        letters.waiting.back(ranges)

    # -- listing

    def page(self, args: dict[str, Any]) -> dict[str, Any]:
        """A page of the dead letters that match: upwards after `after`, or downwards before `before`."""
        wanted, limit = _wanted(args), min(int(args.get("limit", PAGE_MAX)), PAGE_MAX)
        is_downwards = "before" in args
        place = int(args["before"] if is_downwards else args.get("after", 0))
        found, place, is_end = self._look(wanted, place, limit, is_downwards) if limit else ([], place, True)
        return {
            "letters": [[seq, msgspec.to_builtins(letter, builtin_types=(bytes,))] for seq, letter in found],
            "next": place,
            "is_end": is_end,
            **self.counts(),
            "last": self._letters.published.last if self._letters.published else 0,
        }

    def counts(self) -> dict[str, int]:
        """How many dead letters wait, were redriven, and were dropped by people or because there were too many."""
        done = self._letters.letters
        return {
            "waiting": self._letters.waiting.count,
            "redriven": done.redriven.count,
            "dropped": done.dropped.count,
        }

    def _look(
        self,
        wanted: DeadLetterFilter,
        place: int,
        limit: int,
        is_downwards: bool = False,
        topics_max: int = PAGE_MAX,
    ) -> tuple[list[Found], int, bool]:
        """The dead letters that match, the seq to continue from, and whether that is the end."""
        pattern = Pattern(wanted.topic) if wanted.topic else None
        found: list[Found] = []
        topics: set[str] = set()
        seen = seen_bytes = 0
        for seq, letter in self._down(place) if is_downwards else self._up(place + 1):
            if letter is not None:
                seen_bytes += len(letter.payload)
                if wanted.fits(letter, pattern):
                    found.append((seq, letter))
                    topics.add(letter.topic)
            seen, place = seen + 1, seq
            is_long = seen >= SCAN_MAX or seen_bytes >= SCAN_BYTES_MAX or len(topics) >= topics_max
            if is_long or len(found) >= limit:
                return found, place, False
        return found, place, True

    def _up(self, start: int) -> Iterator[tuple[int, DeadLetterContent | None]]:
        published = self._letters.published
        last = published.last if published else 0
        while start <= last:
            stop = min(start + PAGE_MAX, last + 1)
            yield from self._within(start, stop)
            yield stop - 1, None
            start = stop

    def _down(self, stop: int) -> Iterator[tuple[int, DeadLetterContent | None]]:
        published = self._letters.published
        stop = min(stop, published.last + 1) if published else 1
        while stop > 1:
            start = max(stop - PAGE_MAX, 1)
            yield from self._within(start, stop, is_downwards=True)
            yield start, None
            stop = start

    def _within(self, start: int, stop: int, is_downwards: bool = False) -> Iterator[Found]:
        """The dead letters in `[start, stop)` that wait. Each batch is read when its turn comes."""
        letters = self._letters
        done, step = letters.letters, -1 if is_downwards else 1
        waiting = [part for one in done.redriven.missing(start, stop) for part in done.dropped.missing(*one)]
        for low, high in waiting[::step]:
            for entry in letters.journal.find(letters.topic, letters.source, low, high)[::step]:
                try:
                    batch = Batch.parse(letters.journal.fetch(entry))
                except Gone:
                    continue
                payloads = batch.payloads()
                for seq in range(max(low, batch.first), min(high, batch.stop))[::step]:
                    yield seq, read_letter(payloads[seq - batch.first])

    # -- changing

    def redrive(self, args: dict[str, Any]) -> dict[str, Any]:
        """Publish the events of a page of dead letters again on their topics; `after` says where to continue.

        `to` is `all`, or `subscriber`: then each goes only to the subscriber that it failed at, on a private topic.
        """
        to = str(args.get("to", "all"))
        if to not in ("all", "subscriber"):
            raise ValueError(f"to can't be {to!r}: choose all or subscriber")
        found, place, is_end = self._chosen(args, TOPICS_MAX)
        whole = [one for one in found if one[1].has_payload]
        chosen = [(one, topic) for one in whole if (topic := self._target(one[1], to))]
        if not args.get("is_dry"):
            for topic, group in _groups(chosen):
                self._publish(topic, group, bool(args.get("clears_ttl")))
        counts: dict[str, int] = {}
        for _, topic in chosen:
            public = public_topic(topic)
            counts[public] = counts.get(public, 0) + 1
        body = {
            "count": len(chosen),
            "without_payload": len(found) - len(whole),
            "without_subscriber": len(whole) - len(chosen),
            "topics": counts,
        }
        return {**body, "next": place, "is_end": is_end, "waiting": self._letters.waiting.count}

    def drop(self, args: dict[str, Any]) -> dict[str, Any]:
        """Drop a page of dead letters."""
        found, place, is_end = self._chosen(args)
        if found and not args.get("is_dry"):
            self._letters.drop(_ranges(found), self._letters.now_us())
        return {"count": len(found), "next": place, "is_end": is_end, "waiting": self._letters.waiting.count}

    def _chosen(self, args: dict[str, Any], topics_max: int = PAGE_MAX) -> tuple[list[Found], int, bool]:
        """A page of dead letters to redrive or drop; `stop` is the last one that there was when it began."""
        limit = min(max(int(args.get("limit", PAGE_MAX)), 1), PAGE_MAX)
        after = int(args.get("after", 0))
        found, place, is_end = self._look(_wanted(args), after, limit, topics_max=topics_max)
        stop = int(args.get("stop", 0)) or place
        return [one for one in found if one[0] <= stop], place, is_end or place >= stop

    def _target(self, letter: DeadLetterContent, to: str) -> str:
        """The topic on which an event is published again; empty if its subscriber does not take it any more."""
        public = public_topic(letter.topic)
        if to == "all" or letter.subscriber.startswith(ANYCAST):
            return public  # one of many gets it anyway
        account = self._letters.journal.ledger.accounts.get(letter.subscriber)
        topic = private_topic(letter.subscriber, public)
        is_owed = account is not None and account.pattern.matches(topic)
        return topic if is_owed and len(topic.encode()) <= TOPIC_BYTES_MAX else ""

    def _publish(self, topic: str, group: list[Found], clears_ttl: bool) -> None:
        letters = self._letters
        now_us = letters.now_us()
        source = lasting_source(f"redrive\0{letters.node}\0{topic}", letters.journal.id)
        first = letters.journal.sources(topic).get(source, 0) + 1
        batch = _batch(source, topic, first, [letter for _, letter in group], now_us, clears_ttl)
        ranges = _ranges(group)
        record = DeadLettersRedriven(letters.source, ranges, topic, source, first, batch.count, now_us)
        # Either both fit, or nothing happens; twice the record, because it may have to be taken back.
        letters.journal.check_room(2 * len(encode(record)) + batch.head.length)
        letters.journal.stage_record(record)
        letters.waiting.went(ranges)
        try:
            letters.journal.stage(bytes(batch.data), [batch.head])
        except JournalFull:
            self._back(ranges)
            raise
        self._published[source] = batch.stop

    def take_published(self) -> dict[bytes, int]:
        """By source: the seq before which its events were published by redrives since the last call."""
        published, self._published = self._published, {}
        return published


def _wanted(args: dict[str, Any]) -> DeadLetterFilter:
    wanted = msgspec.convert(args.get("wanted", {}), DeadLetterFilter)
    if wanted.code and wanted.code.upper() not in Code.__members__:
        raise ValueError(f"{wanted.code!r} is not a google.rpc code")
    return wanted


def _groups(chosen: list[tuple[Found, str]]) -> Iterator[tuple[str, list[Found]]]:
    """Dead letters whose events can be published as one batch, in their order within a topic."""
    groups: dict[tuple[str, tuple[Any, ...]], list[Found]] = {}
    for (seq, letter), topic in chosen:
        alike = (letter.priority, letter.type, letter.flags, *sorted(letter.columns))
        groups.setdefault((topic, alike), []).append((seq, letter))
    for (topic, _), group in groups.items():
        yield topic, group


def _batch(
    source: bytes, topic: str, first: int, letters: list[DeadLetterContent], now_us: int, clears_ttl: bool
) -> Batch:
    """The events of dead letters under new ids, with their original ids in a header."""
    one = letters[0]
    ttls = [0 if clears_ttl else letter.ttl_ms for letter in letters]
    columns = {name: [letter.columns[name] for letter in letters] for name in one.columns}
    columns.pop("time", None)
    columns.pop("ttl", None)
    if any(ttl_ms != ttls[0] for ttl_ms in ttls):
        columns["ttl"] = ttls
    columns["headers"] = [letter.redriven_headers() for letter in letters]
    if ID in columns:
        columns[ID] = [
            make_id(now_us // 1000, int.from_bytes(environment.token_bytes(10))).bytes for _ in letters
        ]
    payloads = [letter.payload for letter in letters]
    fields: dict[str, Any] = {
        "ttl_ms": max(ttls),
        "priority": one.priority,
        "type": one.type,
        "flags": one.flags,
    }
    return Batch.build(source, topic, first, payloads, now_us, columns=columns, **fields)


def _ranges(found: list[Found]) -> list[Range]:
    return SeqSet.from_ranges((seq, seq + 1) for seq, _ in found).ranges()
