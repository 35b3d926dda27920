"""Tables that a command writes into a page of the documentation, between two marks."""

from __future__ import annotations

from pathlib import Path

Marks = tuple[str, str]


def table_of(text: str, marks: Marks) -> str:
    """The table between the marks of a page's text.

    >>> table_of("a <b>\\nrows\\n<e> z", ("<b>", "<e>"))
    'rows'
    """
    return text.partition(marks[0])[2].partition(marks[1])[0].strip()


def with_table(text: str, marks: Marks, table: str, page: Path) -> str:
    """A page's text with a table between two marks.

    >>> with_table("a <b><e> z", ("<b>", "<e>"), "rows", Path("page.md"))
    'a <b>\\nrows\\n<e> z'
    """
    before, begin, rest = text.partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not begin or not end:
        raise ValueError(f"{page} has no place for the table: add {marks[0]} and {marks[1]}")
    return f"{before}{begin}\n{table}\n{end}{after}"
