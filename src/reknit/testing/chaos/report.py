"""The report of a campaign as one HTML page that loads nothing else."""

from __future__ import annotations

from collections import Counter
from html import escape
from itertools import pairwise
from typing import Any, Final

from reknit.spark.pipeline.report_svg import STYLE, WIDTH, cut, key, line, rect, section, svg, table, text
from reknit.testing.chaos.campaign import Result
from reknit.testing.chaos.checks import CHECKS
from reknit.testing.chaos.injector import Done
from reknit.testing.chaos.observation import LEDGER_COLUMNS
from reknit.testing.chaos.plan import Kind

LEFT: Final = 110
"""Where the time axis begins."""
LANE: Final = 16
CHART: Final = 90
COLORS: Final = {
    Kind.KILL: "lost", Kind.DAMAGE: "lost", Kind.DOWN: "lost",
    Kind.CUT: "dead_lettered", Kind.SILENCE: "dead_lettered", Kind.SLOW: "dead_lettered", Kind.THROTTLE: "dead_lettered",
    Kind.SUSPEND: "in_flight", Kind.RESTART: "in_flight",
    Kind.CLOCK: "accepted", Kind.SYNC: "accepted", Kind.FULL: "accepted",
}  # fmt: skip
LEGEND: Final = (
    ("lost", "killed, damaged, network down"),
    ("dead_lettered", "link cut, silent or slow"),
    ("in_flight", "suspended, restarted"),
    ("accepted", "clock, syncs, full disk"),
)
FINDINGS_MAX: Final = 200


def figures(result: Result) -> dict[str, Any]:
    """The result in a few numbers."""
    seen = result.seen
    rows = [row for (_, _, topic), row in seen.ledgers.items() if topic.startswith("chaos/")]
    return {
        "seed": result.plan.seed,
        "seconds": result.plan.seconds,
        "faults": sum(not one.is_skipped for one in result.done),
        "skipped_faults": sum(one.is_skipped for one in result.done),
        "published": sum(one.last for one in seen.published.values()),
        "delivered": sum(one.count for got in seen.received.values() for one in got.numbers.values()),
        "redelivered": sum(one.repeated for one in seen.received.values()),
        "dead_letters": sum(row["dead_lettered"] for row in rows),
        "lost": sum(row["lost"] for row in rows),
        "audited_rows": len(seen.audit["rows"]) if seen.audit else 0,
        "healed_s": round(result.healed_s, 1),
        "findings": result.findings,
    }


def report_html(result: Result) -> str:
    """The page."""
    parts = [
        _head(result),
        _findings(result),
        _timeline(result),
        _rate(result),
        _pairs(result),
        _faults(result),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>reknit chaos, seed {result.plan.seed}</title><style>{STYLE}</style></head><body><main>"
        f"{''.join(parts)}</main></body></html>\n"
    )


def _head(result: Result) -> str:
    found = figures(result)
    good = not result.findings
    verdict = "every event is accounted for" if good else f"{len(result.findings)} findings"
    names = ("published", "delivered", "redelivered", "dead_letters", "lost", "faults")
    tiles = "".join(
        f'<div class="tile"><b>{found[name]:,}</b><span>{name.replace("_", " ")}</span></div>'
        for name in names
    )
    audit = "ledgers, clients and the pipeline's audit" if result.seen.audit else "ledgers and clients"
    machine = escape(result.machine.text() or "on a machine that allows every kind of fault")
    return (
        f"<h1>Chaos, seed {result.plan.seed}</h1>"
        f"<p>{len(result.seen.fabric.nodes)} nodes and {len(result.seen.fabric.clients)} clients, "
        f"{result.plan.seconds / 60:.1f} minutes of faults, healed after {result.healed_s:.0f} s; {machine}.</p>"
        f'<p class="verdict {"good" if good else "bad"}">{verdict}</p><div class="tiles">{tiles}</div>'
        f"<p>Compared: {audit}, by {len(CHECKS)} checks. Replay: "
        f"<code>python -m reknit.testing.chaos --seed {result.plan.seed} --minutes "
        f"{result.plan.seconds / 60:g}</code></p>"
    )


def _findings(result: Result) -> str:
    if not result.findings:
        return ""
    rows = [[finding] for finding in result.findings[:FINDINGS_MAX]]
    return section("Findings", "What does not agree, by check.", table(["finding"], rows, [0]))


def _timeline(result: Result) -> str:
    targets = sorted({one.fault.target for one in result.done}, key=_by_kind(result))
    if not targets:
        return ""
    scale = _scale(result)
    cells = []
    for row, target in enumerate(targets):
        y = row * LANE
        cells += [text(0, y + 12, cut(target, 16)), line(LEFT, y + LANE, WIDTH, y + LANE)]
        cells += [_bar(one, y, scale) for one in result.done if one.fault.target == target]
    height = len(targets) * LANE + 18
    cells += _axis(result, height - 4, scale)
    said = f"{len(result.done)} faults by target. Hover for what was done."
    return section("Faults over time", said, key(LEGEND) + svg(height, cells))


def _by_kind(result: Result) -> Any:
    """Nodes first, then links, then clients."""
    fabric = result.seen.fabric

    def order(name: str) -> tuple[int, str]:
        return (0 if name in fabric.nodes else 1 if name in fabric.links else 2, name)

    return order


def _scale(result: Result) -> float:
    return (WIDTH - LEFT) / max(result.plan.seconds, *(one.ended_s for one in result.done), 1.0)


def _bar(one: Done, y: float, scale: float) -> str:
    fault = one.fault
    title = f"{fault}{f', {one.note}' if one.note else ''}"
    color = "line" if one.is_skipped else COLORS[fault.kind]
    return rect(
        LEFT + one.began_s * scale, y + 3, max((one.ended_s - one.began_s) * scale, 2), LANE - 6, color, title
    )


def _axis(result: Result, y: float, scale: float) -> list[str]:
    step = next((step for step in (5, 10, 30, 60, 120, 300, 600) if result.plan.seconds / step <= 12), 600)
    marks = range(0, int(result.plan.seconds) + 1, step)
    anchors = {mark: "end" if LEFT + mark * scale > WIDTH - 20 else "middle" for mark in marks}
    return [text(LEFT + mark * scale, y, f"{mark} s", anchors[mark], True) for mark in marks]


def _rate(result: Result) -> str:
    """How many events were stored each second."""
    rates = [
        (at, (count - before) / max(at - then, 0.1))
        for (then, before), (at, count) in pairwise(result.samples)
    ]
    if len(rates) < 2:
        return ""
    scale, top = _scale(result), max(rate for _, rate in rates) or 1.0
    points = [(LEFT + at * scale, CHART - rate / top * (CHART - 12)) for at, rate in rates]
    cells = [line(x1, y1, x2, y2, "accepted") for (x1, y1), (x2, y2) in pairwise(points)]
    cells += [
        line(LEFT, CHART, WIDTH, CHART),
        text(0, 12, f"{top:,.0f}/s", is_soft=True),
        text(0, CHART, "0", is_soft=True),
    ]
    cells += _axis(result, CHART + 14, scale)
    said = "Events that publishers were told are stored, per second, by all publishers together."
    return section("Publishing goes on", said, svg(CHART + 18, cells))


def _pairs(result: Result) -> str:
    seen = result.seen
    rows = []
    for subscriber, publisher in seen.owed():
        row, got = seen.row(subscriber, publisher), seen.received[subscriber.name]
        numbers = got.numbers.get(publisher.name)
        ledger = [f"{row[name]:,}" for name in LEDGER_COLUMNS] if row else [""] * len(LEDGER_COLUMNS)
        last = seen.published[publisher.name].last
        rows.append(
            [
                f"{subscriber.name} on {subscriber.node}",
                publisher.name,
                f"{last:,}",
                f"{numbers.count if numbers else 0:,}",
                *ledger,
            ]
        )
    names = [
        "subscriber",
        "publisher",
        "stored",
        "arrived",
        "published",
        "accepted",
        "dead",
        "lost",
        "in flight",
    ]
    said = (
        "By the clients' own records (stored, arrived) and by the ledger of the subscriber's node (the rest). A client "
        "that repeats what was not confirmed has more events in the ledger than numbers."
    )
    return section("Every publisher and subscriber", said, table(names, rows, [0, 1]))


def _faults(result: Result) -> str:
    counts = Counter(str(one.fault.kind) for one in result.done if not one.is_skipped)
    skipped = Counter(str(one.fault.kind) for one in result.done if one.is_skipped)
    rows = [[kind, counts[kind], skipped[kind]] for kind in map(str, Kind) if counts[kind] or skipped[kind]]
    return section(
        "Faults by kind",
        "Skipped: not possible on this machine.",
        table(["fault", "done", "skipped"], rows, [0]),
    )
