"""Pages of topics, subscribers and the ledger, sorted on the node: people look at fifty of a hundred thousand rows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from heapq import nlargest
from typing import Any, Final

from reknit import environment
from reknit.errors import Gone, LocalError
from reknit.ledger.account import Account, Series
from reknit.ledger.topics import TopicTotals
from reknit.ledger.verdict import verdict
from reknit.ledger.walk import STEP_SERIES
from reknit.node.admin.figures import NodeFigures
from reknit.node.admin.inspection.loss_times import LossTimes
from reknit.node.admin.ledger_reader import EVERY_OTHER
from reknit.node.core.core import Core
from reknit.outcome import FinalOutcome
from reknit.seqset import SeqSet
from reknit.store.journal import Journal
from reknit.topic import Pattern

LIMIT_MAX: Final = 1_000
"""The most rows of one page."""
DEPTH_MAX: Final = 100_000
"""How deep a page may lie: the rows before it have to be sorted, too."""

SUBSCRIBERS_MAX: Final = 50
"""The ledger's page sums up so many subscribers, those with trouble first."""
SERIES_MAX: Final = 50
"""So many sources of a topic are looked at for the oldest event that has not ended."""
TOPICS_MAX: Final = 10
"""So many topics of a subscriber are looked at, if its events that have not ended are spread."""
LOOK_BYTES: Final = 1 << 16

Row = dict[str, Any]
COUNTS: Final = ("published", "accepted", "dead_lettered", "lost", "in_flight")
LEDGER_ORDERS: Final = {
    "trouble": ("lost", "dead_lettered", "in_flight"),
    **{name: (name,) for name in COUNTS},
}
"""The columns by which rows of the ledger are sorted, the largest first. Rows that do not balance come before all."""


class Listings:
    """Answers for one node. Every request has `limit` and `offset`; the answer says how many rows there are."""

    def __init__(self, core: Core, figures: NodeFigures) -> None:
        self._core = core
        self._figures = figures
        self._loss_times = LossTimes(core.journal)

    async def ledger(self, args: Mapping[str, Any]) -> Row:
        """The sums over the whole ledger and those over each subscriber, and a page of its rows.

        `topic` is a pattern and `subscriber` a name; `order` is one of `LEDGER_ORDERS`.
        """
        sums = await self._figures.sums()
        order = str(args.get("order") or "trouble")
        columns = LEDGER_ORDERS.get(order)
        if columns is None:
            raise LocalError(f"order can't be {order!r}: choose one of {', '.join(LEDGER_ORDERS)}")
        pattern, name = _pattern(args, "topic"), str(args.get("subscriber") or "")
        fitting = [
            row
            for row in sums.rows
            if (not name or row["subscriber"] == name) and (pattern is None or pattern.matches(row["topic"]))
        ]
        fitting.sort(
            key=lambda row: (
                *(self._trouble(row, row["topic"]) if order == "trouble" else (row["balanced"],)),
                *(-row[one] for one in columns),
                row["subscriber"],
                row["topic"],
            )
        )
        page = _page(fitting, args)
        several = by_subscriber(sums.rows)
        several.sort(
            key=lambda row: (self._trouble(row, ""), *(-row[one] for one in columns), row["subscriber"])
        )
        totals = total(sums.rows)
        said = verdict(totals, len(several))
        return {
            "mood": said.mood,
            "sentence": said.text,
            "age_s": round(sums.age_s),
            "totals": {**totals, **self._figures.history.of()},
            "subscribers": [self._with_lag(row, "") for row in several[:SUBSCRIBERS_MAX]],
            "subscriber_count": len(several),
            **page,
            "rows": [self._with_lag(row, row["topic"]) for row in page["rows"]],
        }

    def _trouble(self, row: Row, topic: str) -> tuple[bool, bool, float]:
        """Sorts rows that do not balance first, then those that had trouble in the last minutes."""
        age_s = self._figures.history.trouble_s(row["subscriber"], topic)
        is_balanced = row["balanced"] if "balanced" in row else not row["unbalanced"]
        return bool(is_balanced), age_s is None, 0.0 if age_s is None else age_s

    def _with_lag(self, row: Row, topic: str) -> Row:
        """A row with its last minutes, and the age of its oldest event that has not ended."""
        name = row["subscriber"]
        lag_s: float | None = 0.0
        if row["in_flight"]:
            lag_s = oldest_s(self._core.journal, name, "" if topic == EVERY_OTHER else topic)
        return {**row, **self._figures.history.of(name, topic), "lag_s": lag_s}

    def topics(self, args: Mapping[str, Any]) -> Row:
        """A page of topics, in the order of their names or with the most `events`, `sources` or `gaps` first."""
        pattern, order = _pattern(args, "topic"), str(args.get("order") or "topic")
        limit, offset = _bounds(args)
        ledger = self._core.journal.ledger
        names = ledger.series.topics(pattern)
        if order == "topic":
            chosen = list(names[offset : offset + limit])
        elif order in ("events", "sources", "gaps"):
            none = TopicTotals()
            chosen = nlargest(
                offset + limit, names, key=lambda name: getattr(ledger.topics.get(name, none), order)
            )[offset:]
        else:
            raise LocalError(f"order can't be {order!r}: choose topic, events, sources or gaps")
        return {"count": len(names), "rows": self._figures.topics(chosen)}

    def subscribers(self, args: Mapping[str, Any]) -> Row:
        """A page of subscribers, those with the most bytes before them first; each with its lag in seconds."""
        wanted = str(args.get("name") or "")
        rows = [row for row in self._figures.subscribers() if wanted in row["name"]]
        rows.sort(key=lambda row: (-row["waiting_bytes"], -row["unsettled"], row["name"]))
        page = _page(rows, args)
        return {**page, "rows": [{**row, "lag_s": self._lag_s(row["waiting_bytes"])} for row in page["rows"]]}

    def fate(self, args: Mapping[str, Any]) -> list[Row]:
        """What became of one event (`topic`, `source`, `seq`), for every durable subscriber that is owed it."""
        series, seq = (str(args["topic"]), bytes.fromhex(str(args["source"]))), int(args["seq"])
        rows: list[Row] = []
        for name, account in sorted(self._core.journal.ledger.accounts.items()):
            if not account.pattern.matches(series[0]) or seq < account.since.get(series, 1):
                continue
            ends = account.ends.get(series, {})
            outcome = next((end.name.lower() for end, seqs in ends.items() if seq in seqs), "in_flight")
            rows.append({"subscriber": name, "outcome": outcome})
        return rows

    async def losses(self, args: Mapping[str, Any]) -> Row:
        """Ranges of lost events, at most `limit`; each with its reason until its subscriber has confirmed it."""
        limit, _ = _bounds(args)
        pattern, rows = _pattern(args, "topic"), list[Row]()
        accounts = self._core.journal.ledger.accounts
        for name in sorted(accounts):
            for at, (series, ends) in enumerate(
                list(accounts[name].ends.items()) if name in accounts else ()
            ):
                if at % STEP_SERIES == 0:
                    await asyncio.sleep(0)
                lost = ends.get(FinalOutcome.LOST)
                if lost and (pattern is None or pattern.matches(series[0])):
                    rows += _ranges(accounts.get(name), series, lost)
                if len(rows) > limit:
                    return {"is_end": False, "rows": await self._timed(rows[:limit])}
        return {"is_end": True, "rows": await self._timed(rows)}

    async def _timed(self, rows: list[Row]) -> list[Row]:
        """Losses with their times, the newest first."""
        if not rows:
            return rows
        await self._loss_times.catch_up()
        for row in rows:
            series = row["topic"], bytes.fromhex(row["source"])
            row["at_us"] = self._loss_times.of(row["subscriber"], series, row["start"], row["stop"])
        return sorted(rows, key=lambda row: -int(row["at_us"]))

    def _lag_s(self, waiting_bytes: int) -> float:
        """The age of the first event that a subscriber has not been given yet."""
        if not waiting_bytes:
            return 0.0
        journal = self._core.journal
        run = journal.read(max(journal.end - waiting_bytes, journal.start), journal.end, 1)
        if not run.entries:
            return 0.0
        return max(0.0, (environment.time_us() - run.entries[0].head.time_us) / 1e6)


def oldest_s(journal: Journal, subscriber: str, topic: str = "") -> float | None:
    """The age of the oldest event of a topic, or of all, that a subscriber is owed and that has not ended.

    None if it was not found among the first of very many sources.
    """
    account = journal.ledger.accounts.get(subscriber)
    if account is None:
        return None
    if not topic:
        age_s = _oldest_from(journal, account)
        topics = journal.ledger.series.topics(account.pattern) if age_s is None else []
        if 0 < len(topics) <= TOPICS_MAX:
            ages = [oldest_s(journal, subscriber, one) for one in topics]
            return max((age for age in ages if age is not None), default=None)
        return age_s
    times: list[int] = []
    several = journal.ledger.series.of(topic)
    for series in several[:SERIES_MAX]:
        published, ended = journal.ledger.published.get(series), account.ended(series)
        if published is None:
            continue
        seq = ended.first_missing(max(account.since.get(series, 1), published.first))
        found = journal.find(*series, seq, seq + 1) if seq <= published.last else []
        times += [entry.head.time_us for entry in found]
    if times or len(several) > SERIES_MAX:
        return _age_s(min(times)) if times else None
    return 0.0  # they ended meanwhile


def _oldest_from(journal: Journal, account: Account) -> float | None:
    """The same over all topics: the first batch after the place up to which everything has ended."""
    try:
        run = journal.read(max(account.floor, journal.start), None, LOOK_BYTES)
    except Gone:
        return None
    for entry in run.entries:
        head = entry.head
        if account.open_within((head.topic, head.source), head.first, head.stop):
            return _age_s(head.time_us)
    return 0.0 if run.next_position >= journal.end else None


def _age_s(time_us: int) -> float:
    return round(max(0.0, (environment.time_us() - time_us) / 1e6), 3)


def total(rows: Iterable[Row]) -> Row:
    """The sums of the columns, and how many rows do not balance.

    >>> row = {"published": 3, "accepted": 2, "dead_lettered": 0, "lost": 1, "in_flight": 0, "balanced": True}
    >>> total([row, row])["lost"]
    2
    """
    sums: Row = {**dict.fromkeys(COUNTS, 0), "unbalanced": 0}
    for row in rows:
        for column in COUNTS:
            sums[column] += row[column]
        sums["unbalanced"] += not row["balanced"]
    return sums


def by_subscriber(rows: Iterable[Row]) -> list[Row]:
    """The sums over the topics of each subscriber, by name."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["subscriber"], []).append(row)
    return [
        {"subscriber": name, "topics": len(theirs), **total(theirs)} for name, theirs in sorted(found.items())
    ]


def _ranges(account: Account | None, series: Series, lost: SeqSet) -> Iterator[Row]:
    """The ranges of a series that a subscriber lost."""
    topic, source = series
    reasons = {} if account is None else account.losses.get(series, {})
    for start, stop in lost.ranges():
        known = [reason for reason, seqs in reasons.items() if seqs.overlap(start, stop)]
        yield {
            "subscriber": "" if account is None else account.name,
            "topic": topic,
            "source": source.hex(),
            "start": start,
            "stop": stop,
            "reason": ", ".join(known),
            "is_confirmed": not known,
        }


def _pattern(args: Mapping[str, Any], name: str) -> Pattern | None:
    return Pattern(str(args[name])) if args.get(name) else None


def _bounds(args: Mapping[str, Any]) -> tuple[int, int]:
    """The limit and the offset of a page."""
    limit, offset = int(args.get("limit", 100)), int(args.get("offset", 0))
    if not 0 <= limit <= LIMIT_MAX or not 0 <= offset <= DEPTH_MAX:
        raise LocalError(
            f"a page has 0 to {LIMIT_MAX} rows, from 0 to {DEPTH_MAX} on, not {limit} from {offset} on"
        )
    return limit, offset


def _page(rows: list[Row], args: Mapping[str, Any]) -> Row:
    limit, offset = _bounds(args)
    return {"count": len(rows), "rows": rows[offset : offset + limit]}
