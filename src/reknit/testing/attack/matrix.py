"""The matrix: every door, every action, every credential. Only the right credential may bring anything about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from reknit.testing.attack.actions import Action
from reknit.testing.attack.credentials import Credential, Visitor
from reknit.testing.attack.doors import ACTIONS
from reknit.testing.attack.happened import Happened
from reknit.testing.attack.target import Target
from reknit.testing.tables import with_table

NO_ANSWER: Final = "no answer"
MARKS: Final = ("<!-- doors: begin -->", "<!-- doors: end -->")


class Cell(NamedTuple):
    """What one credential brought about."""

    door: str
    action: str
    credential: Credential
    happened: bool
    words: str

    @property
    def problem(self) -> str:
        """What is wrong with it; empty if it is as it should be."""
        what = f"{self.door}: {self.action} with the credential {self.credential.value!r}"
        if self.happened != (self.credential is Credential.RIGHT):
            return f"{what} {'succeeded' if self.happened else 'was refused'}: {self.words}"
        if not self.happened and self.words.startswith(NO_ANSWER):
            return f"{what} was not answered: {self.words}"
        return ""


def _where(action: Action, number: int) -> str:
    """The topic of the event that an attempt would store."""
    return action.topic.format(f"{0x8000 + number:X}" if action.topic.startswith("up/") else number)


async def _try(target: Target, action: Action, credential: Credential, number: int) -> Cell:
    visitor = Visitor(credential, action.identity, target.jwts if action.is_jwt else target.secrets)
    happened, words = False, ""
    try:
        words = await action.attempt(target, visitor, number)
    except Happened:
        happened = True
    if action.topic:
        happened = await target.has_topic(_where(action, number))
    return Cell(action.door, action.name, credential, happened, words)


async def try_all(
    target: Target, actions: Sequence[Action] = ACTIONS, advance: Callable[[str], None] = lambda door: None
) -> list[Cell]:
    """Try one door after the other, and everything at a door at once: who fails often has to wait."""
    cells: list[Cell] = []
    for door, there in groupby(actions, key=lambda action: action.door):
        advance(door)
        tries = [(action, credential) for action in there for credential in action.credentials]
        numbered = enumerate(tries, len(cells) + 1)
        cells += await asyncio.gather(*(_try(target, *one, number) for number, one in numbered))
    return cells


def table(cells: Iterable[Cell]) -> str:
    """The matrix as a table in Markdown."""
    rows: dict[tuple[str, str], dict[Credential, Cell]] = {}
    for cell in cells:
        rows.setdefault((cell.door, cell.action), {})[cell.credential] = cell
    lines = ["| door | action | " + " | ".join(one.value for one in Credential) + " |"]
    lines.append("| --- " * (2 + len(Credential)) + "|")
    for (door, action), by_credential in rows.items():
        marks = [_mark(by_credential.get(one)) for one in Credential]
        lines.append(f"| {door} | {action} | " + " | ".join(marks) + " |")
    return "\n".join(lines)


def write_table(page: Path, cells: Iterable[Cell]) -> None:
    """Write the table between the marks of a page."""
    text = page.read_text(encoding="utf-8")
    page.write_text(with_table(text, MARKS, table(cells), page), encoding="utf-8")


def _mark(cell: Cell | None) -> str:
    return "" if cell is None else "yes" if cell.happened else "no"
