"""Admin requests that read the journal: batches, records, positions. Spark and the command line use them."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from reknit import records
from reknit.config import Config
from reknit.node.core.core import Core
from reknit.node.core.journal_walks import series_of
from reknit.store.journal import READ_BYTES_MAX as PART_BYTES_MAX
from reknit.topic import Pattern

READ_BYTES_MAX: Final = 8 << 20
READ_BATCHES_MAX: Final = 4_096
"""How many batches an answer has, about: to find very many short ones takes longer than to send them."""
SLICE_SERIES: Final = 5_000

Reply = tuple[Any, list[memoryview]]
"""The body of an answer, and the bytes that follow it."""


class JournalRequests:
    """Reads the journal of one node over connections. Every method takes a request's arguments."""

    def __init__(self, core: Core, config: Config) -> None:
        self._core = core
        self._journal = core.journal
        self._config = config

    async def checkpoint(self, args: dict[str, Any]) -> dict[str, int]:
        """The last seq of every source whose topic matches a pattern: a place to resume from.

        The node goes on with its work meanwhile. Everything that was stored before the request is before that place.
        """
        found: dict[str, int] = {}
        for number, ((_, source), seqs) in enumerate(
            series_of(self._journal, Pattern(str(args["pattern"]))), 1
        ):
            if number % SLICE_SERIES == 0:
                await asyncio.sleep(0)
            found[source.hex()] = seqs.last
        return found

    def span(self, args: dict[str, Any]) -> Reply:
        """The first and the last position, the position at a time, and the topic of dead letters."""
        journal = self._journal
        body: dict[str, Any] = {"epoch": self._core.epoch, "start": journal.start, "end": journal.end}
        body["dead_letter_topic"] = self._config.dispatch.dead_letter_topic
        if self._config.journal.kind == "disk":
            body["data_dir"] = str(self._config.node.data_dir.absolute())
        if "time_us" in args:
            body["position"] = journal.position_at(int(args["time_us"]))
        return body, []

    def read(self, args: dict[str, Any]) -> Reply:
        """Batches from a position on: body `{pieces: [[position, length]], next}`, then their bytes."""
        journal = self._journal
        position = int(args["position"])
        stop = min(int(args.get("stop", journal.end)), journal.end)
        room = min(int(args.get("bytes_max", READ_BYTES_MAX)), self._config.limits.frame_bytes_max // 2)
        pieces: list[memoryview] = []
        places: list[tuple[int, int]] = []
        count = 0
        while position < stop and room > 0 and count < READ_BATCHES_MAX:
            run = journal.read(position, stop, min(room, PART_BYTES_MAX))
            if places and len(run.data) > room:
                break  # it gives a batch at least, however long that is
            if run.entries:
                pieces.append(run.data)
                places.append((run.position, len(run.data)))
                room -= len(run.data)
            if run.next_position <= position:
                break  # `stop` lies inside a frame
            position = run.next_position
            count += len(run.entries)
        return {"pieces": places, "next": position, "end": journal.end}, pieces

    def records(self, args: dict[str, Any]) -> Reply:
        """Records (outcomes, subscribers) from a position on, each as its frame."""
        journal = self._journal
        stop = min(int(args.get("stop", journal.end)), journal.end)
        found, after = journal.records(int(args["position"]), stop)
        body = {"records": [[position, records.encode(record)] for position, record in found], "next": after}
        return body, []

    def find(self, args: dict[str, Any]) -> Reply:
        """Events `[start, stop)` of a source on a topic, as far as they are held: their batches, cut to the range.

        If they are too long for one answer, the others are behind `next`, which is `stop` at the end.
        """
        topic, source = str(args["topic"]), args["source"]
        if not isinstance(source, bytes):  # `bytes` makes as many bytes of a number as it says
            raise TypeError(f"source must be bytes, not {type(source).__name__}")
        start, stop = int(args["start"]), int(args["stop"])
        batches = self._core.find(topic, source, start, stop, READ_BYTES_MAX)
        body = {
            "first_held": self._journal.first_held(topic, source),
            "next": batches[-1].stop if batches else stop,
        }
        return body, [memoryview(batch.data) for batch in batches]
