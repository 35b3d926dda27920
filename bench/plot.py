"""The README's picture, drawn from the results."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from bench.report import human
from bench.results import Results, Row

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "bench.png"
PANELS = (
    ("single-100", "100 B events, one by one", "events/s, more is better"),
    ("batch-100", "100 B events, as batches (peers: packed by hand)", "events/s, more is better"),
    ("single-1k", "1 KiB events, one by one", "events/s, more is better"),
    ("latency-p50", "One-way latency at 1,000 events/s, median", "µs, less is better"),
)
OWN, PEER, INK, QUIET = "#d9480f", "#adb5bd", "#212529", "#868e96"
DPI = 150


def draw(results: Results, titles: dict[str, str], path: Path) -> None:
    panels = [panel for panel in PANELS if results.value(panel[0], "reknit")]
    columns = 2 if len(panels) > 1 else 1
    lines = -(-len(panels) // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(6 * columns, 3.2 * lines), squeeze=False)
    flat = [axis for line in axes for axis in line]
    for axis, (case, title, unit) in zip(flat, panels, strict=False):
        rows = [row for row in results.rows if row.case == case]
        draw_panel(axis, rows, titles, f"{title}\n", unit)
    for axis in flat[len(panels) :]:
        axis.set_axis_off()
    figure.tight_layout(h_pad=1.5, w_pad=2.5)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI, facecolor="white")
    plt.close(figure)


def draw_panel(axis: Axes, rows: list[Row], titles: dict[str, str], title: str, unit: str) -> None:
    is_more_better = rows[0].unit == "events/s"
    ordered = sorted(rows, key=lambda row: row.value, reverse=not is_more_better)
    bars = axis.barh(
        [titles[row.subject] for row in ordered],
        [row.value for row in ordered],
        color=[OWN if row.subject == "reknit" else PEER for row in ordered],
        height=0.68,
    )
    axis.bar_label(bars, [human(row.value, row.unit) for row in ordered], padding=4, fontsize=9, color=INK)
    axis.set_title(title.strip(), loc="left", fontsize=10.5, fontweight="bold", color=INK, pad=16)
    axis.text(0, 1.02, unit, transform=axis.transAxes, fontsize=8.5, color=QUIET)
    axis.set_xlim(0, max(row.value for row in ordered) * 1.2)
    axis.spines[:].set_visible(False)
    axis.tick_params(left=False, bottom=False, labelbottom=False, labelsize=9, labelcolor=INK)
    for label in axis.get_yticklabels():
        if label.get_text() == titles["reknit"]:
            label.set_fontweight("bold")
