"""Prints results: as a table in the terminal, and as a smaller one in Markdown for the README."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.cases import Case
from bench.results import Results, Row

README_CASES = (
    "single-100",
    "single-1k",
    "batch-100",
    "batch-1k",
    "latency-p50",
    "latency-p99",
    "node-cpu-100",
    "stalled-memory",
)
README_HEADS = {
    "single-100": "one by one, 100 B",
    "single-1k": "one by one, 1 KiB",
    "batch-100": "as batches¹, 100 B",
    "batch-1k": "as batches¹, 1 KiB",
    "latency-p50": "latency p50",
    "latency-p99": "latency p99",
    "node-cpu-100": "broker CPU an event",
    "stalled-memory": "1 M events waiting²",
}


def show(results: Results, titles: dict[str, str], console: Console) -> None:
    console.print(table(results, titles))
    cases_by_why: dict[tuple[str, str], list[str]] = {}
    for left in results.left_out:
        cases_by_why.setdefault((left.subject, left.why), []).append(left.case)
    for (subject, why), cases in cases_by_why.items():
        console.print(f"[dim]{titles[subject]} is not in {', '.join(cases)}: {escape(why)}[/]")
    for verdict in results.goals:
        mark = "[green]met   [/]" if verdict.is_met else "[red]missed[/]"
        console.print(f"{mark} {escape(verdict.title)}: {verdict.value:g}")


def table(results: Results, titles: dict[str, str]) -> Table:
    shown = Table(title="reknit beside its peers", title_justify="left", min_width=76)
    shown.add_column("")
    for head in ("median", "least … most", "reknit / peer"):
        shown.add_column(head, justify="right", no_wrap=True)
    for case in results.cases:
        shown.add_row(f"[bold]{escape(case.title)}[/]")
        for row in (row for row in results.rows if row.case == case.name):
            shown.add_row(*cells(case, row, titles))
        shown.add_section()
    return shown


def cells(case: Case, row: Row, titles: dict[str, str]) -> tuple[str, ...]:
    name = f"  [bold]{row.subject}[/]" if row.subject == "reknit" else f"  {titles[row.subject]}"
    ends = [human(value, row.unit).removesuffix("/event") for value in (min(row.rounds), max(row.rounds))]
    spread = " … ".join(ends) if len(row.rounds) > 1 else ""
    return (name, human(row.value, row.unit), spread, coloured(case, row.ratio))


def coloured(case: Case, ratio: float | None) -> str:
    """The ratio, green if reknit is better: above 1 for a rate, below 1 for a time or a size."""
    if ratio is None:
        return ""
    is_better = ratio >= 1 if case.is_more_better else ratio <= 1
    return f"[{'green' if is_better else 'red'}]{ratio_text(ratio)}[/]"


def ratio_text(ratio: float) -> str:
    return f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.2g}x"


def human(value: float, unit: str) -> str:
    """A figure with its unit, rounded.

    >>> human(1_234_567, "events/s"), human(2_500, "µs"), human(0.123, "µs/event")
    ('1.23 M/s', '2.50 ms', '0.12 µs/event')
    """
    if unit == "events/s":
        return f"{value / 1e6:.2f} M/s" if value >= 1e6 else f"{value / 1e3:.3g} k/s"
    if unit == "µs" and value >= 1e3:
        return human(value / 1e3, "ms")
    digits = 0 if value >= 100 else 2 if value < 10 else 1
    return f"{value:.{digits}f} {unit}"


def markdown(results: Results, titles: dict[str, str]) -> str:
    """A table of subjects by main cases, with reknit's figure over the peer's in brackets."""
    cases = [name for name in README_CASES if results.value(name, "reknit")]
    subjects = [name for name in titles if any(results.value(case, name) for case in cases)]
    lines = [
        "| | " + " | ".join(README_HEADS[case] for case in cases) + " |",
        "|---|" + "---:|" * len(cases),
    ]
    for subject in subjects:
        name = f"**{titles[subject]}**" if subject == "reknit" else titles[subject]
        lines.append(
            f"| {name} | " + " | ".join(markdown_cell(results.value(case, subject)) for case in cases) + " |"
        )
    return "\n".join([*lines, "", *notes(results)])


def markdown_cell(row: Row | None) -> str:
    if row is None:
        return ""
    text = human(row.value, row.unit).removesuffix("/event")
    if row.subject == "reknit":
        return f"**{text}**"
    return f"{text} ({ratio_text(row.ratio)})" if row.ratio else text


def notes(results: Results) -> list[str]:
    machine, present = results.machine, {row.case for row in results.rows}
    lines = [
        f"{machine['cores']} cores ({machine['cpu']}), Python {machine['python']}, loopback, journal on "
        f"{machine['journal on']}; publisher process → broker process, where there is one → subscriber "
        f"process; every event's number checked; medians of {results.settings['rounds']} rounds in which "
        "all alternate. In brackets: reknit's figure over the peer's."
        + (f" The disk alone: {machine['disk']}." if "disk" in machine else "")
    ]
    if present & {"batch-100", "batch-1k"}:
        lines.append(
            "¹ `publish_many` and `batches()`; the peers have hundreds of events packed into a message by hand."
        )
    if "stalled-memory" in present:
        lines.append("² Memory gained by the process that holds them while one subscriber stands still.")
    return "\n\n".join(lines).splitlines()
