"""The building blocks of the audit page: its style, cards, tables and a few SVG shapes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final

__all__ = ["STYLE", "WIDTH", "card", "cut", "key", "line", "rect", "section", "svg", "table", "text"]

WIDTH: Final = 720

STYLE: Final = """
:root { color-scheme: light dark;
  --page: #fbfbfa; --card: #ffffff; --ink: #1d2126; --soft: #5f6873; --line: #dfe3e8;
  --accepted: #2f7d6b; --dead_lettered: #d08a1d; --lost: #c6373f; --in_flight: #8aa0b8;
  --good: #2f7d6b; --bad: #c6373f; }
@media (prefers-color-scheme: dark) { :root {
  --page: #14171a; --card: #1c2125; --ink: #e7eaed; --soft: #9aa5b1; --line: #323a42;
  --accepted: #4fb39c; --dead_lettered: #e0a545; --lost: #ee6a70; --in_flight: #6c8199;
  --good: #4fb39c; --bad: #ee6a70; } }
* { box-sizing: border-box }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif }
main { max-width: 800px; margin: 0 auto; padding: 32px 20px 64px }
h1 { font-size: 24px; margin: 0 0 4px } h2 { font-size: 17px; margin: 36px 0 6px }
p { margin: 4px 0 12px; color: var(--soft) }
.verdict { font-weight: 600; font-size: 17px } .good { color: var(--good) } .bad { color: var(--bad) }
.tiles { display: flex; flex-wrap: wrap; gap: 10px; margin: 18px 0 }
.tile, .card { background: var(--card); border: 1px solid var(--line); border-radius: 8px }
.tile { padding: 10px 14px; flex: 1 1 110px }
.tile b { display: block; font-size: 22px; font-variant-numeric: tabular-nums }
.tile span { color: var(--soft); font-size: 13px }
.card { padding: 14px; overflow-x: auto; margin-bottom: 10px }
svg { display: block; max-width: 100%; height: auto }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink) }
svg .soft { fill: var(--soft) } svg .axis { stroke: var(--line) }
table { border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: 4px 8px; border-bottom: 1px solid var(--line); white-space: nowrap }
th { color: var(--soft); font-weight: 500 }
td.name, th.name { text-align: left; white-space: normal; overflow-wrap: break-word }
.key { display: flex; flex-wrap: wrap; gap: 14px; font-size: 13px; color: var(--soft); margin: 0 0 10px }
.key i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 5px }
code { font: 12px ui-monospace, monospace }
"""


def section(title: str, said: str, *cards: str) -> str:
    """A heading, a sentence and cards. `said` is already escaped."""
    return f"<h2>{escape(title)}</h2><p>{said}</p>{''.join(map(card, cards))}"


def card(content: str) -> str:
    return f'<div class="card">{content}</div>'


def key(parts: Iterable[tuple[str, str]]) -> str:
    """The legend of the colors."""
    cells = (f'<span><i style="background: var(--{name})"></i>{title}</span>' for name, title in parts)
    return f'<div class="key">{"".join(cells)}</div>'


def table(names: Sequence[str], rows: Iterable[Sequence[Any]], text_columns: Sequence[int]) -> str:
    """A table; columns other than `text_columns` are numbers, aligned to the right."""
    kinds = ["name" if at in text_columns else "" for at in range(len(names))]
    lines = [_cells("th", kinds, names), *(_cells("td", kinds, row) for row in rows)]
    return f"<table>{''.join(lines)}</table>"


def _cells(tag: str, kinds: Sequence[str], values: Sequence[Any]) -> str:
    cells = (
        f'<{tag} class="{kind}">{escape("" if value is None else str(value))}</{tag}>'
        for kind, value in zip(kinds, values, strict=True)
    )
    return f"<tr>{''.join(cells)}</tr>"


def svg(height: float, cells: Iterable[str]) -> str:
    size = f'viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}"'
    return f'<svg {size} role="img">{"".join(cells)}</svg>'


def rect(x: float, y: float, width: float, height: float, color: str, title: str = "") -> str:
    """A bar; `title` is its tooltip."""
    inner = f"<title>{escape(title)}</title>" if title else ""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect {place} rx="2" fill="var(--{color})">{inner}</rect>'


def text(x: float, y: float, content: str, anchor: str = "start", is_soft: bool = False) -> str:
    kind = ' class="soft"' if is_soft else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{escape(content)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, color: str = "") -> str:
    look = f'stroke="var(--{color})" stroke-width="2"' if color else 'class="axis"'
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {look}/>'


def cut(content: str, chars: int) -> str:
    return content if len(content) <= chars else f"{content[: chars - 1]}…"
