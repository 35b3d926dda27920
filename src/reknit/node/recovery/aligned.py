"""Events that an alignment fetched and that are older than the ones in the journal: a second journal beside it.

A journal is appended to, and not rewritten: subscribers that are behind would get old events after newer ones. So these
events are in a second journal of the same kind, in `aligned` under the node's directory: durable, found by range after a
restart, and removed by the same retention. They answer recovery requests and further nodes, and are not delivered.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any, Final

from reknit import environment
from reknit.batch import Batch
from reknit.config import Config
from reknit.ledger import Series
from reknit.node.core.keepers import JournalKeeper
from reknit.node.journals import open_journal
from reknit.protocol.recovery import alignment
from reknit.protocol.recovery.holdings import Holdings
from reknit.seqset import SeqSet
from reknit.store.journal import Journal
from reknit.topic import Pattern
from reknit.wire.recovery import Span

FOLDER: Final = "aligned"
HOT_S: Final = 60.0
"""Series that changed within this time go into an alignment's first message."""
HOT_RUNS_MAX: Final = 8
SLICE_SERIES: Final = 1_000
"""How many series are looked at before the node goes on with its other work."""
COMPARED_S: Final = 30.0
"""How long the holdings that another node compares with its own are kept for its next question."""


class AlignedEvents:
    """The second journal, which is made when the first event is stored in it; and both journals seen as one."""

    def __init__(self, journal: Journal, config: Config) -> None:
        self._main = journal
        folder = config.node.data_dir / FOLDER
        self._config = dataclasses.replace(config, node=dataclasses.replace(config.node, data_dir=folder))
        self._journal: Journal | None = None
        self._writing, self._comparing = asyncio.Lock(), asyncio.Lock()
        self._compared: dict[str, Holdings] = {}
        """What another node compares with its own, by pattern: only the latest."""
        self._forgetting: asyncio.TimerHandle | None = None
        if config.journal.kind == "disk" and folder.exists():
            self._open()

    @property
    def journal(self) -> Journal | None:
        """The second journal; None before anything is in it."""
        return self._journal

    def _open(self) -> Journal:
        if self._journal is None:
            self._journal = open_journal(self._config)[0]
        return self._journal

    # -- storing

    def put(self, batch: Batch) -> int:
        """Store the new events of a batch; returns how many they are. `save` makes them durable.

        Raises `JournalError` where there is no room now: the next alignment requests them again.
        """
        journal = self._open()
        held = journal.ledger.published.get((batch.topic, batch.source), SeqSet())
        fresh = [batch.cut(*bounds) for bounds in held.missing(batch.first, batch.stop)]
        for part in fresh:
            journal.stage(bytes(part.data), [part.head])
        return sum(part.count for part in fresh)

    async def save(self) -> None:
        """Make everything durable, and apply retention."""
        journal = self._journal
        if journal is not None:
            async with self._writing:
                await asyncio.to_thread(journal.checkpoint)
                journal.trim()

    async def close(self) -> None:
        """Close the second journal."""
        if self._forgetting is not None:
            self._forgetting.cancel()
        async with self._writing:
            journal, self._journal = self._journal, None
            if journal is not None:
                await asyncio.to_thread(journal.close)

    # -- answers to recovery requests

    def find(self, topic: str, source: bytes, start: int, stop: int, bytes_max: int) -> list[Batch]:
        """The events of `[start, stop)` that are held here, cut to it, in seq order."""
        if self._journal is None:
            return []
        return JournalKeeper(self._journal, environment.time_us).find(topic, source, start, stop, bytes_max)

    def survey(self, pattern: Pattern, age_s: float = 0.0) -> list[Span]:
        """The ranges that are held here of every series that matches."""
        return (
            []
            if self._journal is None
            else JournalKeeper(self._journal, environment.time_us).survey(pattern, age_s)
        )

    # -- both journals, to be compared with another node's

    async def holdings(self, pattern: Pattern) -> Holdings:
        """What the node holds of every series. The node goes on with its work meanwhile."""
        held = Holdings()
        for journal in (self._main, self._journal) if self._journal is not None else (self._main,):
            published = journal.ledger.published
            for number, series in enumerate(list(published)):
                if number % SLICE_SERIES == 0:
                    await asyncio.sleep(0)
                if (seqs := published.get(series)) and pattern.matches(series[0]):
                    floor = journal.first_held(*series)
                    held.add(
                        series, ((max(start, floor), stop) for start, stop in seqs.ranges() if stop > floor)
                    )
                    held.set_floor(series, floor)
        return held

    async def compare(self, args: dict[str, Any]) -> alignment.Input:
        """One level of the holdings, for another node that compares them with its own.

        A comparison has several levels: they are of the same holdings, unless too much time passes between them.
        """
        pattern, level = Pattern(str(args["pattern"])), args["level"]
        async with self._comparing:
            held = self._compared.get(pattern.text)
            if held is None or level == "digest":
                held = await self.holdings(pattern)
                self._remember(pattern.text, held)
        match level:
            case "digest":
                return alignment.digest(held, pattern.text, self._hot())
            case "buckets":
                return alignment.buckets(held)
            case _:
                wanted = [int(number) for number in args["buckets"]]
                if len(wanted) > alignment.SPAN_BUCKETS:
                    raise ValueError(f"ask for {alignment.SPAN_BUCKETS} buckets at a time, not {len(wanted)}")
                return alignment.rows(held, wanted)

    def _remember(self, pattern: str, held: Holdings) -> None:
        self._compared = {pattern: held}
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._forgetting = asyncio.get_running_loop().call_later(COMPARED_S, self._compared.clear)

    def _hot(self) -> list[Series]:
        """The recently changed series, the latest first."""
        journal = self._main
        position = journal.position_at(environment.time_us() - int(HOT_S * 1e6))
        stop = journal.end
        hot: dict[Series, bool] = {}
        for _ in range(HOT_RUNS_MAX):
            if position >= stop:
                break
            run = journal.read(max(position, journal.start), stop)
            for entry in run.entries:
                hot.pop((entry.head.topic, entry.head.source), None)
                hot[entry.head.topic, entry.head.source] = True
            position = run.next_position
        return list(reversed(hot))
