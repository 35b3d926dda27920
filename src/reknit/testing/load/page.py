"""The figures of a soak as one HTML page that loads nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from reknit.spark.pipeline.report_svg import STYLE, WIDTH, line, section, svg, table, text

CHART: Final = 80
COLUMNS: Final = ("figure", "level", "per_hour", "grown", "sureness", "grows")


def report_html(
    samples: Mapping[str, Sequence[tuple[float, float]]], rows: Sequence[Mapping[str, Any]], visits: int
) -> str:
    """The page: the slopes, and a chart of each figure."""
    grows = [row["figure"] for row in rows if row["grows"]]
    verdict = f"these grow: {', '.join(grows)}" if grows else "nothing grows"
    seconds = max((points[-1][0] for points in samples.values() if points), default=0.0)
    names = [name.replace("_", " ") for name in COLUMNS]
    cells = [[_cell(row[name]) for name in COLUMNS] for row in rows]
    charts = "".join(section(name, "", _chart(points)) for name, points in samples.items())
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>reknit soak</title><style>{STYLE}</style></head><body><main><h1>Soak</h1>"
        f"<p>{seconds / 60:.0f} minutes; {visits:,} clients came and went.</p>"
        f'<p class="verdict {"bad" if grows else "good"}">{verdict}</p>'
        f"{section('Slopes', 'After the warm-up.', table(names, cells, [0]))}{charts}</main></body></html>\n"
    )


def _cell(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _chart(points: Sequence[tuple[float, float]]) -> str:
    top, last = max((y for _, y in points), default=0.0) or 1.0, points[-1][0] or 1.0
    places = [(x / last * WIDTH, CHART - y / top * (CHART - 10)) for x, y in points]
    cells = [line(x1, y1, x2, y2, "accepted") for (x1, y1), (x2, y2) in pairwise(places)]
    cells += [line(0, CHART, WIDTH, CHART), text(0, CHART + 14, "0 s", is_soft=True)]
    cells.append(text(WIDTH, CHART + 14, f"{last:.0f} s", "end", True))
    return svg(CHART + 18, cells)
