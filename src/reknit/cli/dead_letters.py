"""`reknit dead-letters`: events that ended undelivered, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from reknit.cli.options import AsJson, NodeUrl
from reknit.cli.output import cell, fail, log_to_stderr, plain, print_json, shown, table

if TYPE_CHECKING:
    from reknit.node.dead_letters import Letter

IDLE_S = 0.5
"""The journal is read to its end: nothing more comes for so long."""

app = typer.Typer(help="Look at events that ended undelivered.", no_args_is_help=True)


@app.command("list")
def list_(
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="The newest so many.")] = 20,
    json: AsJson = False,
    node: NodeUrl = "",
) -> None:
    """List dead letters, the newest last."""
    from reknit.cli.running import run

    log_to_stderr()
    letters = run(_letters(node))
    if json:
        print_json([_as_json(seq, letter) for seq, letter in letters])
        return
    if not letters:
        typer.echo("no dead letters")
        return
    from rich.console import Console

    from reknit.cli.printing import clock

    made = table(("no", "died", "topic", "seq", "subscriber", "reason", "text"), ())
    for seq, letter in letters[-limit:]:
        place = (clock(letter.died_us), cell(letter.topic, 40), str(letter.seq), cell(letter.subscriber))
        made.add_row(str(seq), *place, cell(letter.reason), cell(letter.text, 60))
    Console(highlight=False).print(made)
    if len(letters) > limit:
        typer.echo(f"and {len(letters) - limit:,} older ones: --limit")


@app.command()
def show(
    number: Annotated[int, typer.Argument(metavar="NO", min=1, help="Its number in the list.")],
    json: AsJson = False,
    node: NodeUrl = "",
) -> None:
    """Show one dead letter, with the event's payload."""
    from reknit.cli.running import run

    log_to_stderr()
    found = dict(run(_letters(node))).get(number)
    if found is None:
        fail(f"there is no dead letter {number}: `reknit dead-letters list` has their numbers")
    row = _as_json(number, found)
    if json:
        print_json(row)
        return
    for name, value in row.items():
        typer.echo(f"{name:12}{plain(str(value))}")


def _as_json(number: int, letter: Letter) -> dict[str, Any]:
    from reknit.cli.printing import iso
    from reknit.outcome import Code

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
        "node": letter.node,
        "payload": shown(letter.payload),
    }


async def _letters(node: str) -> list[tuple[int, Letter]]:
    """All that the node holds, with their own seqs."""
    from reknit.cli.running import connected
    from reknit.node.dead_letters import read_letter

    async with connected(node) as session:
        topic = next(
            row["value"] for row in await session.ask("config") if row["name"] == "dispatch.dead_letter_topic"
        )
        letters: list[tuple[int, Letter]] = []
        async with session.subscribe(topic.strip('"'), history=True) as events:
            while batches := await events.take_all(IDLE_S):
                letters += [(e.seq, read_letter(e.payload)) for batch in batches for e in batch.events()]
    return letters
