"""What an alignment brought, beside the journal: events older than what the journal goes on from.

A journal goes on, and is not rewritten: subscribers that are behind would get old events after newer ones. So these are
kept in a second journal of the same kind, in `aligned` under the node's directory: durable, found by range after a
restart, and removed by the same retention. They answer recovery and further nodes, and are delivered to nobody else.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import Any, Final

from reknit.batch import Batch
from reknit.config import Config
from reknit.ledger import Stream
from reknit.node.journals import open_journal
from reknit.node.recovery.keepers import JournalKeeper
from reknit.protocol.recovery import alignment
from reknit.seqset import SeqSet
from reknit.store.journal import Journal
from reknit.topic import Pattern
from reknit.wire.recovery import Span

FOLDER: Final = "aligned"
HOT_S: Final = 60.0
"""What changed within so long goes into an alignment's first message."""
HOT_RUNS_MAX: Final = 8


class Aligned:
    """The second journal, which is there once something is kept in it; and both journals seen as one."""

    def __init__(self, journal: Journal, config: Config) -> None:
        self._main = journal
        folder = config.node.data_dir / FOLDER
        self._config = dataclasses.replace(config, node=dataclasses.replace(config.node, data_dir=folder))
        self._journal: Journal | None = None
        self._writing = asyncio.Lock()
        if config.journal.kind == "disk" and folder.exists():
            self._open()

    def _open(self) -> Journal:
        if self._journal is None:
            self._journal = open_journal(self._config)[0]
        return self._journal

    # -- keeping

    def put(self, batch: Batch) -> int:
        """Keep what is new of a batch; gives how many events that is. `save` makes them durable.

        Raises `JournalError` where there is no room now: the next alignment asks for it again.
        """
        journal = self._open()
        held = journal.ledger.published.get((batch.topic, batch.source), SeqSet())
        fresh = [batch.cut(*bounds) for bounds in held.missing(batch.first, batch.stop)]
        for part in fresh:
            journal.stage(bytes(part.data), [part.head])
        return sum(part.count for part in fresh)

    async def save(self) -> None:
        """Make everything durable, and let go of what is more than the retention allows."""
        journal = self._journal
        if journal is not None:
            async with self._writing:
                await asyncio.to_thread(journal.checkpoint)
                journal.trim()

    async def close(self) -> None:
        async with self._writing:
            journal, self._journal = self._journal, None
            if journal is not None:
                await asyncio.to_thread(journal.close)

    # -- a keeper

    def find(self, topic: str, source: bytes, start: int, stop: int, bytes_max: int) -> list[Batch]:
        """What is held here of `[start, stop)`, cut to it, in seq order."""
        if self._journal is None:
            return []
        return JournalKeeper(self._journal).find(topic, source, start, stop, bytes_max)

    def survey(self, pattern: Pattern, age_s: float = 0.0) -> list[Span]:
        """What is held here of every stream that matches."""
        return [] if self._journal is None else JournalKeeper(self._journal).survey(pattern, age_s)

    # -- both journals, to be compared with another node's

    def holdings(self, pattern: Pattern) -> tuple[dict[Stream, SeqSet], dict[Stream, int]]:
        """What the node holds, and below which seq it let go on purpose."""
        held: dict[Stream, SeqSet] = {}
        floors: dict[Stream, int] = {}
        for journal in (self._main, self._journal) if self._journal is not None else (self._main,):
            for stream, seqs in journal.ledger.published.items():
                if seqs and pattern.matches(stream[0]):
                    floor = journal.first_held(*stream)
                    kept = seqs.copy()
                    kept.discard(0, floor)
                    held[stream] = kept.union(held.get(stream, SeqSet()))
                    floors[stream] = max(floor, floors.get(stream, 0))
        return held, floors

    def compare(self, args: dict[str, Any]) -> alignment.Input:
        """One level of what is held here, for another node that compares it with what it holds."""
        pattern = Pattern(str(args["pattern"]))
        held, _ = self.holdings(pattern)
        match args["level"]:
            case "digest":
                return alignment.digest(held, pattern.text, self._hot())
            case "buckets":
                return alignment.buckets(held)
            case _:
                return alignment.rows(held, [int(number) for number in args["buckets"]])

    def _hot(self) -> list[Stream]:
        """The streams that changed lately, the latest first."""
        journal = self._main
        position = journal.position_at(time.time_ns() // 1000 - int(HOT_S * 1e6))
        stop = journal.end
        hot: dict[Stream, bool] = {}
        for _ in range(HOT_RUNS_MAX):
            if position >= stop:
                break
            run = journal.read(max(position, journal.start), stop)
            for entry in run.entries:
                hot.pop((entry.head.topic, entry.head.source), None)
                hot[entry.head.topic, entry.head.source] = True
            position = run.next_position
        return list(reversed(hot))
