"""Prints dead letters: as a table, as lines, as JSON."""

from __future__ import annotations

from typing import Any

import msgspec
import typer

from reknit.cli.events.event_output import clock, iso
from reknit.cli.output import plain, shown
from reknit.cli.tables import cell, console, table
from reknit.dead_letter import DeadLetterContent
from reknit.outcome import Code


def print_table(found: list[tuple[int, DeadLetterContent]]) -> None:
    """Print dead letters with their numbers, one per row."""
    made = table(("no", "died", "topic", "seq", "subscriber", "reason", "text"), ())
    for number, letter in found:
        place = (clock(letter.died_us), cell(letter.topic, 40), str(letter.seq), cell(letter.subscriber))
        made.add_row(str(number), *place, cell(letter.reason), cell(letter.text, 60))
    console().print(made)


def print_line(number: int, letter: DeadLetterContent, json: bool) -> None:
    """Print one dead letter on one line."""
    if json:
        typer.echo(msgspec.json.encode(as_json(number, letter)).decode())
        return
    place = (f"{number}", clock(letter.died_us), letter.topic, str(letter.seq), letter.subscriber)
    typer.echo("  ".join(map(plain, (*place, letter.reason, letter.text))))


def print_fields(row: dict[str, Any]) -> None:
    """Print one dead letter with every field, one per line; a list has a line for each item."""
    for name, value in row.items():
        for item in value if isinstance(value, list) else [value]:
            text = "  ".join(map(str, item.values())) if isinstance(item, dict) else str(item)
            typer.echo(f"{name:14}{plain(text)}")


def as_json(number: int, letter: DeadLetterContent) -> dict[str, Any]:
    """A dead letter as a JSON object."""
    tries = [
        {"time": iso(one.time_us), "outcome": one.outcome.name.lower(), "code": Code(one.code).name}
        for one in letter.tries
    ]
    return {
        "no": number,
        "topic": letter.topic,
        "source": letter.source.hex(),
        "seq": letter.seq,
        "published": iso(letter.time_us),
        "died": iso(letter.died_us),
        "subscriber": letter.subscriber,
        "reason": letter.reason,
        "code": Code(letter.code).name,
        "text": letter.text,
        "attempts": letter.attempts,
        "tries": tries,
        "node": letter.node,
        "path": letter.path,
        "priority": f"CS{letter.priority}",
        "ttl_ms": letter.ttl_ms,
        "redriven": letter.redriven,
        "original": letter.original or letter.id,
        "payload": shown(letter.payload) if letter.has_payload else None,
    }
