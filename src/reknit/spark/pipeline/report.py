"""`audit.html`: the audit as one page with charts. Self-contained: no script, no font, nothing to load."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

from reknit.spark.pipeline.report_svg import (
    STYLE,
    WIDTH,
    card,
    cut,
    key,
    line,
    rect,
    section,
    svg,
    table,
    text,
)
from reknit.spark.stages.audit.lake import Audit, AuditRow, SeriesCoverage

__all__ = ["report_html"]

PARTS: Final = (
    ("accepted", "accepted"),
    ("dead_lettered", "dead-lettered"),
    ("lost", "lost"),
    ("in_flight", "in flight"),
)
SERIES_PARTS: Final = (
    ("accepted", "settled"),
    ("lost", "lost"),
    ("dead_lettered", "came late"),
    ("in_flight", "held back"),
)
BARS_MAX: Final = 60
COLUMNS_MAX: Final = 120
PROBLEMS_SHOWN: Final = 100


def report_html(audit: Audit) -> str:
    """The page as HTML."""
    sections = [
        _head(audit),
        _problems(audit),
        _ledger(audit.rows),
        _over_time(audit.windows),
        _series(audit),
        _latency(audit.latency),
        _letters(audit.letters, sum(row.dead_lettered for row in audit.rows)),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>reknit audit</title><style>{STYLE}</style></head><body><main>"
        f"{''.join(sections)}</main></body></html>\n"
    )


def _head(audit: Audit) -> str:
    when = datetime.fromtimestamp(audit.time_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    owed = sum(row.published for row in audit.rows)
    tiles = [("events in the tables", audit.events), ("owed to subscribers", owed)]
    tiles += [(title, sum(getattr(row, name) for row in audit.rows)) for name, title in PARTS]
    cells = (f'<div class="tile"><b>{value:,}</b><span>{title}</span></div>' for title, value in tiles)
    nodes = ", ".join(f"{escape(node)} up to position {end:,}" for node, end in audit.positions.items())
    subscribers = len({(row.node, row.subscriber) for row in audit.rows})
    facts = f"{audit.streams:,} series, {subscribers} durable subscribers. {nodes}"
    return (
        f"<h1>reknit audit</h1><p><code>{escape(audit.lake)}</code> · {when}</p>{_verdict(audit)}"
        f'<div class="tiles">{"".join(cells)}</div><p>{facts}</p>'
    )


def _verdict(audit: Audit) -> str:
    if not audit.rows and not audit.losses.unaccepted:
        return '<p class="verdict">There is no durable subscriber, so nothing is owed to anybody.</p>'
    lost = audit.losses.unaccepted
    if audit.balanced and lost:
        said = f"✗ The ledger balances, and {lost:,} events are lost."
        return f'<p class="verdict bad">{said}</p>'
    if audit.balanced:
        said = "✓ The ledger balances: every event has one outcome, or is in flight."
        return f'<p class="verdict good">{said}</p>'
    return '<p class="verdict bad">✗ The ledger does not balance.</p>'


def _problems(audit: Audit) -> str:
    if not audit.problems:
        return ""
    rows = [
        [one.subscriber, one.topic, one.source, f"[{one.start:,}, {one.stop:,})", one.problem]
        for one in audit.problems[:PROBLEMS_SHOWN]
    ]
    more = len(audit.problems) - len(rows)
    said = "Ranges of events that keep the ledger from balancing." + (
        f" {more:,} more are not shown." if more else ""
    )
    names = ["subscriber", "topic", "source", "seqs", "problem"]
    return section("Problems", said, table(names, rows, (0, 1, 2, 4)))


def _ledger(rows: list[AuditRow]) -> str:
    """A bar per subscriber and topic: where the published events went."""
    if not rows:
        return ""
    shown = sorted(rows, key=lambda row: (row.balanced, -row.published))[:BARS_MAX]
    cells: list[str] = []
    for at, row in enumerate(shown):
        y = at * 40
        mark = "" if row.balanced else " ✗"
        cells.append(text(0, y + 12, cut(f"{row.subscriber} · {row.topic}", 80) + mark))
        cells.append(text(WIDTH, y + 12, f"{row.published:,}", "end", is_soft=True))
        cells += _stack(row, y + 18)
    names = ["subscriber", "topic", "published", *(title for _, title in PARTS), "retries"]
    fields = ("published", *(name for name, _ in PARTS), "retries")
    lines = ([row.subscriber, row.topic, *(f"{getattr(row, name):,}" for name in fields)] for row in shown)
    said = "published = accepted + dead-lettered + lost + in flight, for every durable subscriber and topic."
    picture = key(PARTS) + svg(len(shown) * 40, cells)
    return section("Ledger", said, picture, table(names, lines, (0, 1)))


def _stack(row: AuditRow, y: float) -> list[str]:
    """One stacked bar. Every part that is not empty is wide enough to be seen."""
    values = [(name, title, getattr(row, name)) for name, title in PARTS if getattr(row, name)]
    total = max(row.published, sum(value for _, _, value in values), 1)
    room = WIDTH - 3 * len(values)
    cells: list[str] = []
    x = 0.0
    for name, title, value in values:
        width = 3 + room * value / total
        cells.append(rect(x, y, width - 1, 12, name, f"{title}: {value:,} of {row.published:,}"))
        x += width
    return cells


def _over_time(rows: list[AuditRow]) -> str:
    """Columns per window of publishing time, all subscribers together."""
    sums: dict[str, dict[str, int]] = {}
    for row in rows:
        window = sums.setdefault(row.window, {name: 0 for name, _ in PARTS})
        for name, _ in PARTS:
            window[name] += getattr(row, name)
    if len(sums) < 2:
        return ""
    shown = sorted(sums.items())[-COLUMNS_MAX:]
    top = max(sum(window.values()) for _, window in shown) or 1
    step = WIDTH / len(shown)
    cells = [line(0, 140.5, WIDTH, 140.5), text(0, 11, f"{top:,} at most", is_soft=True)]
    for at, (start, window) in enumerate(shown):
        y = 140.0
        said = ", ".join(f"{title} {window[name]:,}" for name, title in PARTS if window[name])
        for name in (name for name, _ in PARTS if window[name]):
            height = max(120 * window[name] / top, 2)
            y -= height
            cells.append(rect(at * step, y, max(step - 1.5, 1), height, name, f"{start[:16]}: {said}"))
    cells.append(text(0, 158, shown[0][0][:16], is_soft=True))
    cells.append(text(WIDTH, 158, shown[-1][0][:16], "end", is_soft=True))
    said = "By time of publishing, all subscribers together. Windows without events are left out."
    return section("Over time", said, key(PARTS) + svg(164, cells))


def _series(audit: Audit) -> str:
    """One strip per series: what is settled, and where it has gaps."""
    if not audit.strips:
        return ""
    cells = [cell for at, strip in enumerate(audit.strips) for cell in _strip(strip, at * 34)]
    said = (
        f"{audit.lost:,} events are missing, {audit.late:,} came late, {audit.held:,} wait after a gap, "
        f"{audit.recovered:,} batches were recovered. Each strip is one series, from its first seq to its last."
    )
    if audit.streams > len(audit.strips):
        said += f" These are the {len(audit.strips)} with the most losses."
    return section("Series", said, key(SERIES_PARTS) + svg(len(audit.strips) * 34, cells))


def _strip(strip: SeriesCoverage, y: float) -> list[str]:
    end = max([strip.next, *(stop for _, stop in strip.held)])
    scale = WIDTH / max(end - 1, 1)
    holes = sum(stop - start for start, stop, _ in strip.lost)
    said = f"{end - 1:,} events" + (f", {holes:,} lost" if holes else "")
    cells = [
        text(0, y + 11, cut(f"{strip.topic} · {strip.source}", 72)),
        text(WIDTH, y + 11, said, "end", is_soft=True),
        rect(0, y + 16, (strip.next - 1) * scale, 10, "accepted"),
    ]
    parts = [("lost", start, stop, f"lost ({why})") for start, stop, why in strip.lost]
    parts += [("dead_lettered", start, stop, "came late") for start, stop in strip.late]
    parts += [("in_flight", start, stop, "held back") for start, stop in strip.held]
    for color, start, stop, what in parts:
        width = max((stop - start) * scale, 2)
        x = min((start - 1) * scale, WIDTH - width)
        cells.append(rect(x, y + 16, width, 10, color, f"[{start:,}, {stop:,}) {what}"))
    return cells


def _latency(rows: list[dict[str, Any]]) -> str:
    """From publishing to acceptance, on a logarithmic axis: a bar from the median to the 99th percentile."""
    if not rows:
        return ""
    shown = sorted(rows, key=lambda row: -int(row["events"]))[:BARS_MAX]
    first = math.floor(math.log10(min(max(row["ms_p50"], 0.01) for row in shown)))
    last = max(math.ceil(math.log10(max(max(row["ms_max"], 0.02) for row in shown))), first + 1)

    def x(ms: float) -> float:
        return WIDTH * (math.log10(max(ms, 10.0**first)) - first) / (last - first)

    height = len(shown) * 36
    cells: list[str] = []
    for power in range(first, last + 1):
        at = x(10.0**power)
        anchor = "start" if power == first else "end" if power == last else "middle"
        cells += [line(at, 0, at, height), text(at, height + 14, _ms(10.0**power), anchor, is_soft=True)]
    for index, row in enumerate(shown):
        cells += _latency_bar(row, x, index * 36)
    said = (
        "From publishing to acceptance, over events. A bar spans the median to the 99th percentile; its line ends at "
        "the longest."
    )
    return section("Latency", said, svg(height + 20, cells))


def _latency_bar(row: dict[str, Any], x: Callable[[float], float], y: float) -> list[str]:
    median, p99, longest = (x(row[name]) for name in ("ms_p50", "ms_p99", "ms_max"))
    said = f"median {_ms(row['ms_p50'])}, p99 {_ms(row['ms_p99'])}, longest {_ms(row['ms_max'])}"
    return [
        text(4, y + 12, cut(f"{row['subscriber']} · {row['topic']}", 50)),
        text(WIDTH - 4, y + 12, said, "end", is_soft=True),
        line(median, y + 23, longest, y + 23, "in_flight"),
        rect(median, y + 18, max(p99 - median, 2), 10, "accepted", said),
    ]


def _letters(rows: list[dict[str, Any]], ended: int) -> str:
    """Dead letters by reason; `ended` is their number in the ledger."""
    if not rows:
        said = f"The ledger has {ended:,}; the table is still empty, since its stage runs last."
        return section("Dead letters", said if ended else "There are no dead letters.")
    reasons: dict[str, int] = {}
    for row in rows:
        reasons[row["reason"] or "none"] = reasons.get(row["reason"] or "none", 0) + row["letters"]
    top = max(reasons.values())
    cells: list[str] = []
    for at, (reason, count) in enumerate(sorted(reasons.items(), key=lambda pair: -pair[1])):
        width = max(480 * count / top, 2)
        cells += [
            text(150, at * 28 + 16, reason, "end"),
            rect(160, at * 28 + 4, width, 15, "dead_lettered"),
            text(166 + width, at * 28 + 16, f"{count:,}", is_soft=True),
        ]
    names = ["reason", "topic", "subscriber", "letters", "first", "last"]
    fields = ("reason", "topic", "subscriber", "letters", "first_died", "last_died")
    lines = ([row[name] for name in fields] for row in rows[:BARS_MAX])
    return section("Dead letters", "By reason.", svg(len(reasons) * 28, cells)) + card(
        table(names, lines, (0, 1, 2))
    )


def _ms(ms: float) -> str:
    """A duration, in short.

    >>> _ms(0.25), _ms(12), _ms(4200)
    ('0.25 ms', '12 ms', '4.2 s')
    """
    return f"{ms:.3g} ms" if ms < 1000 else f"{ms / 1000:,.4g} s"
