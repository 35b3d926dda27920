"""What became of one event, as far as this node knows: kept, forwarded, delivered, retried, settled, and when.

Times come from the records of the journal after the event. Reading them takes as long as the journal is, so one answer
reads a part of it and says how far it came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from reknit.batch import Batch
from reknit.errors import Gone, LocalError
from reknit.ledger import Series
from reknit.node.admin.pipelines import Pipelines
from reknit.node.core.core import Core
from reknit.node.links.links import Links
from reknit.outcome import Code
from reknit.records import Attempts, LossesKnown, Outcomes, Record
from reknit.seqset import SeqSet

BYTES_MAX: Final = 64 << 20
"""How much of the journal one answer looks through."""
PART_BYTES: Final = 1 << 20
FACTS_MAX: Final = 500
Fact = dict[str, Any]


class EventStories:
    """Tells the stories of events on one node."""

    def __init__(
        self,
        core: Core,
        *,
        node_name: str,
        links: Links,
        pipelines: Pipelines,
        attempts: Callable[[bytes, int], dict[str, Any]],
    ) -> None:
        self._core = core
        self._node = node_name
        self._links = links
        self._pipelines = pipelines
        self._attempts = attempts
        """What anycast remembers of an event."""

    async def story(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """What is known of one event (`topic`, `source`, `seq`), from a place in the journal on (`position`).

        `facts` are ordered by time as far as they have one; `next` is None once the whole journal was read.
        """
        topic, source, seq = str(args["topic"]), bytes.fromhex(str(args["source"])), int(args["seq"])
        if len(source) != 16 or seq < 1:
            raise LocalError("an event is named by a source of 16 bytes and a seq from 1 on")
        journal = self._core.journal
        entries = journal.find(topic, source, seq, seq + 1)
        body: dict[str, Any] = {
            "node": self._node,
            "origin": self._links.origin(source),
            "is_known": seq in journal.ledger.published.get((topic, source), SeqSet()),
            "is_held": bool(entries),
            "journal_end": journal.end,
            "facts": [],
            "next": None,
        }
        if not entries:
            return {**body, "forwards": [], "lakes": [], "scanned": 0}
        entry = entries[0]
        start = max(int(args.get("position") or 0), entry.position)
        if start == entry.position:
            body["facts"] = [*self._kept(topic, source, seq), *self._tried(topic, source, seq)]
        facts, position = await self._settled(topic, source, seq, start)
        body["facts"] = sorted([*body["facts"], *facts], key=lambda fact: fact["at_us"])[:FACTS_MAX]
        body["next"] = position if position < journal.end else None
        return {
            **body,
            "position": entry.position,
            "scanned": position - entry.position,
            "forwards": self._forwards(topic, entry.position, (topic, source), seq),
            "lakes": self._lakes(entry.position),
        }

    def _kept(self, topic: str, source: bytes, seq: int) -> list[Fact]:
        journal = self._core.journal
        entry = journal.find(topic, source, seq, seq + 1)[0]
        try:
            batch = Batch.parse(journal.fetch(entry))
        except Gone:
            return []
        times = batch.columns().get("time")
        at_us = int(times[seq - batch.first]) if times else batch.time_us
        events = f"{batch.count:,} event{'s' * (batch.count != 1)}"
        return [
            _fact("published", at_us, text=f"as {seq} of its source"),
            _fact("kept", 0, text=f"at position {entry.position}, in a batch of {events}"),
        ]

    def _tried(self, topic: str, source: bytes, seq: int) -> list[Fact]:
        """The attempts to deliver it to one of many, and those that wait for another one."""
        facts: list[Fact] = []
        for row in self._attempts(source, seq)["attempts"]:
            facts.append(_fact("handed out", row["sent_us"], row["path"], node=row["node"]))
            if row["ended_us"]:
                ended = str(row["outcome"]).lower().replace("_", " ")
                facts.append(_fact(ended, row["ended_us"], row["path"], text=row["text"], node=row["node"]))
        for name, account in self._core.journal.ledger.accounts.items():
            count = account.tallies.get((topic, source), {}).get(seq)
            facts += [
                _fact(one.outcome.name.lower().replace("_", " "), one.time_us, name, code=one.code)
                for one in (count.tries if count is not None else ())
            ]
        return facts

    async def _settled(self, topic: str, source: bytes, seq: int, start: int) -> tuple[list[Fact], int]:
        """What the records say from a position on, and the position up to which they were read."""
        journal, facts = self._core.journal, list[Fact]()
        position = max(start, journal.start)
        stop = min(journal.end, position + BYTES_MAX)
        while position < stop and len(facts) < FACTS_MAX:
            found, after = journal.records(position, stop, PART_BYTES)
            for _, record in found:
                facts += _facts_of(record, topic, source, seq)
            if after <= position:
                break
            position = after
            await asyncio.sleep(0)
        return facts, position

    def _forwards(self, topic: str, position: int, series: Series, seq: int) -> list[dict[str, Any]]:
        """The neighbours over which it goes to nodes with subscribers, and whether it is stored there."""
        links = self._links
        ways = links.routes.reachable()
        origin = links.origin(series[1])
        came_from = ways[origin].first if origin in ways else ""
        behind: dict[str, list[str]] = {}
        for name in sorted(links.routes.destinations(topic, "journal")):
            if name in ways and ways[name].first != came_from:
                behind.setdefault(ways[name].first, []).append(name)
        rows = []
        for name, nodes in behind.items():
            flow = links.machine.outgoing.get(name)
            is_stored = flow is not None and (flow.reached > position or flow.stored(series) > seq)
            rows.append({"node": name, "for": nodes, "is_stored": is_stored, "url": links.url(name)})
        return rows

    def _lakes(self, position: int) -> list[dict[str, Any]]:
        """The pipelines that read this node's journal, and whether they have captured the event."""
        return [
            {"lake": row["lake"], "stage": row["stage"], "is_captured": at is not None and at > position}
            | {"is_settled": bool(at is not None and at > position and not row["held"])}
            for row in self._pipelines.rows()
            for at in [row["positions"].get(self._core.epoch)]
        ]


def _facts_of(record: Record, topic: str, source: bytes, seq: int) -> list[Fact]:
    """What a record says of one event."""
    match record:
        case Outcomes(name=name, rows=rows):
            return [
                _fact(
                    row.end.name.lower().replace("_", "-"),
                    row.time_us,
                    name,
                    text=row.text,
                    reason=row.reason,
                    code=row.code,
                    attempts=row.attempts,
                )
                for row in rows
                if row.start <= seq < row.stop and (row.topic, row.source) == (topic, source)
            ]
        case Attempts(name=name, rows=tries):
            return [
                _fact(
                    one.outcome.name.lower().replace("_", " "),
                    one.time_us,
                    name,
                    code=one.code,
                    attempts=one.acquired,
                )
                for one in tries
                if one.start <= seq < one.stop and (one.topic, one.source) == (topic, source)
            ]
        case LossesKnown(name=name, ranges=ranges, time_us=time_us):
            is_told = any(
                one.start <= seq < one.stop and (one.topic, one.source) == (topic, source) for one in ranges
            )
            return [_fact("told of the loss", time_us, name)] if is_told else []
    return []


def _fact(what: str, at_us: int, who: str = "", *, code: int = 0, **others: Any) -> Fact:
    """One thing that happened. `who` is a subscriber or a path."""
    name = Code(code).name if code and code in Code._value2member_map_ else ""
    return {"what": what, "at_us": at_us, "who": who, "code": name} | {
        name: value for name, value in others.items() if value
    }
