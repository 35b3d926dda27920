"""`audit.html`: the audit as one page with pictures. Self-contained: no script, no font, nothing to load."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

from reknit.spark.audit_run import Audit, LedgerRow, Strip

__all__ = ["report_html"]

WIDTH: Final = 720
PARTS: Final = (
    ("accepted", "accepted"),
    ("dead_lettered", "dead-lettered"),
    ("lost", "lost"),
    ("in_flight", "in flight"),
)
BARS_MAX: Final = 60

_STYLE: Final = """
:root { color-scheme: light dark; --page: #fbfbfa; --card: #ffffff; --ink: #1d2126; --soft: #5f6873; --line: #dfe3e8;
  --accepted: #2f7d6b; --dead_lettered: #d08a1d; --lost: #c6373f; --in_flight: #8aa0b8; --good: #2f7d6b; --bad: #c6373f; }
@media (prefers-color-scheme: dark) { :root { --page: #14171a; --card: #1c2125; --ink: #e7eaed; --soft: #9aa5b1; --line: #323a42;
  --accepted: #4fb39c; --dead_lettered: #e0a545; --lost: #ee6a70; --in_flight: #6c8199; --good: #4fb39c; --bad: #ee6a70; } }
* { box-sizing: border-box }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 820px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 24px; margin: 0 0 4px } h2 { font-size: 17px; margin: 36px 0 6px }
p { margin: 4px 0 12px; color: var(--soft) } .verdict { font-weight: 600; font-size: 17px }
.good { color: var(--good) } .bad { color: var(--bad) }
.tiles { display: flex; flex-wrap: wrap; gap: 10px; margin: 18px 0 }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px; flex: 1 1 120px }
.tile b { display: block; font-size: 22px; font-variant-numeric: tabular-nums } .tile span { color: var(--soft); font-size: 13px }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 14px; overflow-x: auto }
svg { display: block; max-width: 100%; height: auto } svg text { font: 12px system-ui, sans-serif; fill: var(--ink) }
svg .soft { fill: var(--soft) } svg .axis { stroke: var(--line) } svg .track { fill: var(--line) }
table { border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: 4px 8px; border-bottom: 1px solid var(--line); white-space: nowrap }
th { color: var(--soft); font-weight: 500 } td.name, th.name { text-align: left; white-space: normal; word-break: break-word }
.key { display: flex; flex-wrap: wrap; gap: 14px; font-size: 13px; color: var(--soft); margin: 0 0 10px }
.key i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 5px }
code { font: 12px ui-monospace, monospace }
"""


def report_html(audit: Audit) -> str:
    """The page."""
    sections = [
        _head(audit),
        _problems(audit),
        _ledger(audit.rows),
        _over_time(audit.windows),
        _strips(audit),
        _latency(audit.latency),
        _letters(audit.letters),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>reknit audit</title><style>{_STYLE}</style></head><body><main>"
        f"{''.join(sections)}</main></body></html>\n"
    )


def _head(audit: Audit) -> str:
    when = datetime.fromtimestamp(audit.time_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    sums = {name: sum(getattr(row, name) for row in audit.rows) for name, _ in PARTS}
    owed = sum(row.published for row in audit.rows)
    count = len({(row.node, row.subscriber) for row in audit.rows})
    if not audit.rows:
        verdict = '<p class="verdict">No durable subscriber: nothing is owed to anybody.</p>'
    elif audit.balanced:
        verdict = (
            '<p class="verdict good">✓ The ledger balances: every event has one end, or is under way.</p>'
        )
    else:
        verdict = '<p class="verdict bad">✗ The ledger does not balance.</p>'
    tiles = [("events in the tables", audit.events), ("owed to subscribers", owed)]
    tiles += [(title, sums[name]) for name, title in PARTS]
    lines = "".join(f'<div class="tile"><b>{value:,}</b><span>{title}</span></div>' for title, value in tiles)
    nodes = ", ".join(f"{escape(node)} up to position {end:,}" for node, end in audit.positions.items())
    facts = f"{audit.streams:,} streams, {count} durable subscribers. {nodes}"
    return (
        f"<h1>reknit audit</h1><p><code>{escape(audit.lake)}</code> · {when}</p>{verdict}"
        f'<div class="tiles">{lines}</div><p>{facts}</p>'
    )


def _problems(audit: Audit) -> str:
    if not audit.problems:
        return ""
    rows = [
        [
            p.subscriber,
            p.topic,
            f"{p.source[:12]}…",
            f"[{p.start:,}, {p.stop:,})",
            f"{p.stop - p.start:,}",
            p.problem,
        ]
        for p in audit.problems[:100]
    ]
    more = len(audit.problems) - len(rows)
    note = f"<p>… and {more:,} more.</p>" if more > 0 else ""
    names = ["subscriber", "topic", "source", "seqs", "events", "problem"]
    return f'<h2 class="bad">Problems</h2><div class="card">{_table(names, rows, (0, 1, 2, 5))}</div>{note}'


def _key(parts: Iterable[tuple[str, str]]) -> str:
    cells = "".join(f'<span><i style="background: var(--{name})"></i>{title}</span>' for name, title in parts)
    return f'<div class="key">{cells}</div>'


def _table(names: Sequence[str], rows: Iterable[Sequence[Any]], text_columns: Sequence[int]) -> str:
    kind = ["name" if at in text_columns else "" for at in range(len(names))]
    head = "".join(f'<th class="{k}">{escape(name)}</th>' for k, name in zip(kind, names, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f'<td class="{k}">{escape(str(v))}</td>' for k, v in zip(kind, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _ledger(rows: list[LedgerRow]) -> str:
    """A bar per subscriber and topic: where the published events went."""
    if not rows:
        return ""
    shown = sorted(rows, key=lambda row: (row.balanced, -row.published))[:BARS_MAX]
    bars = []
    for at, row in enumerate(shown):
        y = at * 40
        name = escape(f"{row.subscriber} · {row.topic}")
        mark = "" if row.balanced else " ✗"
        bars.append(f'<text x="0" y="{y + 12}">{_cut(name, 80)}{mark}</text>')
        total = max(row.published, row.accepted + row.dead_lettered + row.lost + row.in_flight, 1)
        bars.append(f'<text x="{WIDTH}" y="{y + 12}" text-anchor="end" class="soft">{row.published:,}</text>')
        bars += _stack(row, y + 18, 12, total)
    picture = _svg(len(shown) * 40, bars)
    names = ["subscriber", "topic", "published", *(title for _, title in PARTS), "retries"]
    table = _table(
        names,
        (
            [
                r.subscriber,
                r.topic,
                *(
                    f"{v:,}"
                    for v in (r.published, r.accepted, r.dead_lettered, r.lost, r.in_flight, r.retries)
                ),
            ]
            for r in shown
        ),
        (0, 1),
    )
    return (
        "<h2>Ledger</h2><p>published = accepted + dead-lettered + lost + in flight, for every durable subscriber "
        f'and topic.</p><div class="card">{_key(PARTS)}{picture}</div><div class="card" style="margin-top: 10px">{table}</div>'
    )


def _stack(row: LedgerRow, y: float, height: float, total: int) -> list[str]:
    """One stacked bar; a part that is there is never thinner than can be seen."""
    cells = []
    x = 0.0
    values = [(name, title, getattr(row, name)) for name, title in PARTS]
    room = WIDTH - sum(3 for _, _, value in values if value)
    for name, title, value in values:
        if not value:
            continue
        width = 3 + room * value / total
        cells.append(
            f'<rect x="{x:.1f}" y="{y}" width="{max(width - 1, 1):.1f}" height="{height}" rx="2" '
            f'fill="var(--{name})"><title>{title}: {value:,} of {row.published:,}</title></rect>'
        )
        x += width
    return cells


def _over_time(rows: list[LedgerRow]) -> str:
    """Columns per window of publishing time, all subscribers together."""
    sums: dict[str, dict[str, int]] = {}
    for row in rows:
        window = sums.setdefault(row.window, {name: 0 for name, _ in PARTS})
        for name, _ in PARTS:
            window[name] += getattr(row, name)
    if len(sums) < 2:
        return ""
    shown = sorted(sums.items())[-120:]
    top = max(sum(window.values()) for _, window in shown) or 1
    step = WIDTH / len(shown)
    cells = [f'<line class="axis" x1="0" x2="{WIDTH}" y1="140.5" y2="140.5"/>']
    for at, (start, window) in enumerate(shown):
        y = 140.0
        said = ", ".join(f"{title} {window[name]:,}" for name, title in PARTS if window[name])
        for name, _ in PARTS:
            height = 124 * window[name] / top
            if not window[name]:
                continue
            y -= max(height, 2)
            cells.append(
                f'<rect x="{at * step + 0.5:.1f}" y="{y:.1f}" width="{max(step - 1.5, 1):.1f}" height="{max(height, 2):.1f}" '
                f'fill="var(--{name})"><title>{escape(start)}: {said}</title></rect>'
            )
    cells.append(f'<text class="soft" x="0" y="158">{escape(shown[0][0][:16])}</text>')
    cells.append(
        f'<text class="soft" x="{WIDTH}" y="158" text-anchor="end">{escape(shown[-1][0][:16])}</text>'
    )
    cells.append(f'<text class="soft" x="0" y="11">{top:,} at most</text>')
    text = "<h2>Over time</h2><p>By the time of publishing, all subscribers together.</p>"
    return f'{text}<div class="card">{_key(PARTS)}{_svg(164, cells)}</div>'


def _strips(audit: Audit) -> str:
    """A strip per source: what is settled, and where it has holes."""
    if not audit.strips:
        return ""
    cells: list[str] = []
    for at, strip in enumerate(audit.strips):
        cells += _strip(strip, at * 34)
    lost = f"{audit.lost:,} events are missing" if audit.lost else "Nothing is missing"
    text = f"{lost}; {audit.late:,} came late, {audit.held:,} wait behind a gap, {audit.recovered:,} batches were recovered."
    key = _key(
        (
            ("accepted", "settled"),
            ("lost", "lost"),
            ("dead_lettered", "came late"),
            ("in_flight", "held back"),
        )
    )
    shown = f" The {len(audit.strips)} with the most losses." if audit.streams > len(audit.strips) else ""
    picture = _svg(len(audit.strips) * 34, cells)
    return f'<h2>Streams</h2><p>{text} Every strip is one source, from its first seq to its last.{shown}</p><div class="card">{key}{picture}</div>'


def _strip(strip: Strip, y: int) -> list[str]:
    end = max([strip.next, *(stop for _, stop in strip.held)])
    scale = WIDTH / max(end - 1, 1)
    name = f"{strip.topic} · {strip.source[:12]}…"
    holes = sum(stop - start for start, stop, _ in strip.lost)
    said = f"{end - 1:,} events" + (f", {holes:,} lost" if holes else "")
    cells = [
        f'<text x="0" y="{y + 11}">{escape(_cut(name, 70))}</text>',
        f'<text class="soft" x="{WIDTH}" y="{y + 11}" text-anchor="end">{said}</text>',
        f'<rect x="0" y="{y + 16}" width="{(strip.next - 1) * scale:.1f}" height="10" rx="2" fill="var(--accepted)"/>',
    ]
    parts = [("lost", a, b, f"lost ({why})") for a, b, why in strip.lost]
    parts += [("dead_lettered", a, b, "came late") for a, b in strip.late]
    parts += [("in_flight", a, b, "held back") for a, b in strip.held]
    for color, start, stop, what in parts:
        width = max((stop - start) * scale, 2)
        x = min((start - 1) * scale, WIDTH - width)
        cells.append(
            f'<rect x="{x:.1f}" y="{y + 16}" width="{width:.1f}" height="10" fill="var(--{color})">'
            f"<title>[{start:,}, {stop:,}) {what}</title></rect>"
        )
    return cells


def _latency(rows: list[dict[str, Any]]) -> str:
    """From publishing to acceptance, on a logarithmic axis: a bar from the median to the 99th percentile."""
    if not rows:
        return ""
    shown = sorted(rows, key=lambda row: -row["events"])[:BARS_MAX]
    low = min(max(row["ms_p50"], 0.01) for row in shown)
    high = max(max(row["ms_max"], 0.02) for row in shown)
    first, last = (
        math.floor(math.log10(low)),
        max(math.ceil(math.log10(high)), math.floor(math.log10(low)) + 1),
    )

    def x(ms: float) -> float:
        return WIDTH * (math.log10(max(ms, 10.0**first)) - first) / (last - first)

    height = len(shown) * 36
    cells = []
    for power in range(first, last + 1):
        at = min(max(x(10.0**power), 0.5), WIDTH - 0.5)
        anchor = "start" if power == first else "end" if power == last else "middle"
        cells.append(f'<line class="axis" x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{height}"/>')
        cells.append(
            f'<text class="soft" x="{at:.1f}" y="{height + 14}" text-anchor="{anchor}">{_ms(10.0**power)}</text>'
        )
    for at, row in enumerate(shown):
        y = at * 36
        a, b, c = x(row["ms_p50"]), x(row["ms_p99"]), x(row["ms_max"])
        said = f"median {_ms(row['ms_p50'])}, p99 {_ms(row['ms_p99'])}, longest {_ms(row['ms_max'])}"
        cells += [
            f'<text x="0" y="{y + 12}">{escape(_cut(row["subscriber"] + " · " + row["topic"], 50))}</text>',
            f'<text class="soft" x="{WIDTH}" y="{y + 12}" text-anchor="end">{said}</text>',
            f'<line x1="{a:.1f}" x2="{c:.1f}" y1="{y + 23}" y2="{y + 23}" stroke="var(--in_flight)" stroke-width="2"/>',
            f'<rect x="{a:.1f}" y="{y + 18}" width="{max(b - a, 2):.1f}" height="10" rx="2" fill="var(--accepted)"><title>{said}</title></rect>',
        ]
    text = "<h2>Latency</h2><p>From publishing to acceptance, over events: the bar is the median to the 99th percentile, the line ends at the longest.</p>"
    return f'{text}<div class="card">{_svg(height + 20, cells)}</div>'


def _letters(rows: list[dict[str, Any]]) -> str:
    """Dead letters by reason."""
    if not rows:
        return "<h2>Dead letters</h2><p>There are none.</p>"
    reasons: dict[str, int] = {}
    for row in rows:
        reasons[row["reason"] or "none"] = reasons.get(row["reason"] or "none", 0) + row["letters"]
    top = max(reasons.values())
    cells = []
    for at, (reason, count) in enumerate(sorted(reasons.items(), key=lambda pair: -pair[1])):
        y = at * 28
        width = max(480 * count / top, 2)
        cells += [
            f'<text x="150" y="{y + 15}" text-anchor="end">{escape(reason)}</text>',
            f'<rect x="160" y="{y + 4}" width="{width:.1f}" height="15" rx="2" fill="var(--dead_lettered)"/>',
            f'<text class="soft" x="{166 + width:.1f}" y="{y + 16}">{count:,}</text>',
        ]
    names = ["reason", "topic", "subscriber", "letters", "first", "last"]
    lines = [
        [r["reason"], r["topic"], r["subscriber"], f"{r['letters']:,}", r["first_died"], r["last_died"]]
        for r in rows[:50]
    ]
    table = _table(names, lines, (0, 1, 2))
    return f'<h2>Dead letters</h2><p>By reason.</p><div class="card">{_svg(len(reasons) * 28, cells)}</div><div class="card" style="margin-top: 10px">{table}</div>'


def _svg(height: float, cells: Iterable[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">{"".join(cells)}</svg>'


def _ms(ms: float) -> str:
    """A span of time, short.

    >>> _ms(0.25), _ms(12), _ms(4200)
    ('0.25 ms', '12 ms', '4.2 s')
    """
    return f"{ms:.3g} ms" if ms < 1000 else f"{ms / 1000:,.4g} s"


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[: chars - 1]}…"
