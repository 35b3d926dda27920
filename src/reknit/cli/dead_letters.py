"""`reknit dead-letters`: events that ended undelivered: why, and what to do with them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reknit.cli.dead_letter_filters import choosing, read_rate
from reknit.cli.options import AsJson, NodeUrl
from reknit.cli.output import cell, fail, log_to_stderr, plain, print_json, shown, table

if TYPE_CHECKING:
    from reknit.dead_letter import Letter, Wanted

app = typer.Typer(help="Look at events that ended undelivered, redrive or drop them.", no_args_is_help=True)

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say how many it would be.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@app.command("list")
@choosing
def list_(
    wanted: Wanted,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="The newest so many; 0: all.")] = 20,
    json: AsJson = False,
    node: NodeUrl = "",
) -> None:
    """List dead letters that wait, the newest last."""
    from reknit.cli.running import run

    log_to_stderr()
    if limit == 0:
        run(_print_all(node, wanted, json))
        return
    found, waiting = run(_newest(node, wanted, limit))
    if json:
        print_json([_as_json(number, letter) for number, letter in found])
    elif not found:
        typer.echo("no dead letters" if not waiting else f"none of {waiting:,} dead letters fits")
    else:
        _print_table(found)
        if waiting > len(found):
            typer.echo(f"{len(found):,} of {waiting:,} that wait: --limit")


@app.command()
def show(
    number: Annotated[int, typer.Argument(metavar="NO", min=1, help="Its number in the list.")],
    json: AsJson = False,
    node: NodeUrl = "",
) -> None:
    """Show one dead letter, with the event's payload and every attempt."""
    from reknit.cli.running import run

    log_to_stderr()
    found = run(_one(node, number))
    if found is None:
        fail(f"there is no dead letter {number}: `reknit dead-letters list` has their numbers")
    row = _as_json(number, found)
    if json:
        print_json(row)
        return
    for name, value in row.items():
        for line in value if isinstance(value, list) else [value]:
            typer.echo(f"{name:14}{plain(_line(line))}")


@app.command()
@choosing
def redrive(
    wanted: Wanted,
    rate: Annotated[
        str, typer.Option("--rate", metavar="N/s", help="At most so fast; 0: as fast as it goes.")
    ] = "1000/s",
    clear_ttl: Annotated[
        bool,
        typer.Option("--clear-ttl", help="Let the new events never expire; otherwise their ttl begins anew."),
    ] = False,
    dry_run: DryRun = False,
    json: AsJson = False,
    node: NodeUrl = "",
) -> None:
    """Publish dead letters again on their own topics, each once, however often this is run."""
    from reknit.cli.running import run

    log_to_stderr()
    speed = read_rate(rate)
    total = run(_redrive(node, wanted, speed, clear_ttl, dry_run))
    if json:
        print_json({**total, "is_dry": dry_run})
        return
    for name, count in sorted(total["topics"].items()):
        typer.echo(f"{plain(name)}: {count:,}")
    typer.echo(f"{total['count']:,} dead letters {'would be' if dry_run else 'were'} redriven")
    if total["without_payload"]:
        typer.echo(f"{total['without_payload']:,} have no payload and stay")


@app.command()
@choosing
def drop(
    wanted: Wanted,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: AsJson = False,
    node: NodeUrl = "",
) -> None:
    """Drop dead letters for good."""
    from reknit.cli.running import run

    log_to_stderr()
    if not dry_run and not yes:
        count = run(_drop(node, wanted, is_dry=True))
        typer.confirm(f"Drop {count:,} dead letters for good?", abort=True)
    count = run(_drop(node, wanted, dry_run))
    if json:
        print_json({"count": count, "is_dry": dry_run})
    else:
        typer.echo(f"{count:,} dead letters {'would be' if dry_run else 'were'} dropped")


# -- with the node


async def _newest(node: str, wanted: Wanted, limit: int) -> tuple[list[tuple[int, Letter]], int]:
    from reknit.cli.running import connected
    from reknit.client.dead_letters import letters, waiting

    found: list[tuple[int, Letter]] = []
    async with connected(node) as session:
        async for one in letters(session, wanted, newest_first=True):
            found.append(one)
            if len(found) == limit:
                break
        return found[::-1], await waiting(session)


async def _print_all(node: str, wanted: Wanted, json: bool) -> None:
    """Everything, as it comes: one line a letter."""
    import msgspec

    from reknit.cli.event_output import clock
    from reknit.cli.running import connected
    from reknit.client.dead_letters import letters

    async with connected(node) as session:
        async for number, letter in letters(session, wanted):
            if json:
                typer.echo(msgspec.json.encode(_as_json(number, letter)).decode())
            else:
                place = (f"{number}", clock(letter.died_us), letter.topic, str(letter.seq), letter.subscriber)
                typer.echo("  ".join(map(plain, (*place, letter.reason, letter.text))))


async def _one(node: str, number: int) -> Letter | None:
    from reknit.cli.running import connected
    from reknit.client.dead_letters import letters

    async with connected(node) as session:
        async for found, letter in letters(session, after=number - 1):
            return letter if found == number else None
    return None


async def _redrive(node: str, wanted: Wanted, rate: float, clears_ttl: bool, is_dry: bool) -> dict[str, Any]:
    from reknit.cli.running import connected
    from reknit.client.dead_letters import redrive as pages

    total: dict[str, Any] = {"count": 0, "without_payload": 0, "topics": {}}
    async with connected(node) as session:
        steps = pages(session, wanted, rate=rate, clears_ttl=clears_ttl, is_dry=is_dry)
        async for body in _with_progress(session, "redriving", steps):
            total["count"] += body["count"]
            total["without_payload"] += body["without_payload"]
            for name, count in body["topics"].items():
                total["topics"][name] = total["topics"].get(name, 0) + count
    return total


async def _drop(node: str, wanted: Wanted, is_dry: bool) -> int:
    from reknit.cli.running import connected
    from reknit.client.dead_letters import drop as pages

    count = 0
    async with connected(node) as session:
        async for body in _with_progress(session, "dropping", pages(session, wanted, is_dry=is_dry)):
            count += body["count"]
    return count


async def _with_progress(
    session: Any, what: str, steps: AsyncIterator[dict[str, Any]]
) -> AsyncIterator[dict[str, Any]]:
    """The steps, with a bar on a terminal: how far through the letters that were there at the beginning."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    last = int((await session.ask("dead_letters", limit=0))["last"])
    columns = (TextColumn(what), BarColumn(), TextColumn("{task.fields[done]:,}"), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(what, total=max(last, 1), done=0)
        done = 0
        async for body in steps:
            done += body["count"]
            bar.update(task, completed=min(body["next"], last), done=done)
            yield body


# -- printing


def _print_table(found: list[tuple[int, Letter]]) -> None:
    from rich.console import Console

    from reknit.cli.event_output import clock

    made = table(("no", "died", "topic", "seq", "subscriber", "reason", "text"), ())
    for number, letter in found:
        place = (clock(letter.died_us), cell(letter.topic, 40), str(letter.seq), cell(letter.subscriber))
        made.add_row(str(number), *place, cell(letter.reason), cell(letter.text, 60))
    Console(highlight=False).print(made)


def _line(value: Any) -> str:
    return "  ".join(map(str, value.values())) if isinstance(value, dict) else str(value)


def _as_json(number: int, letter: Letter) -> dict[str, Any]:
    from reknit.cli.event_output import iso
    from reknit.outcome import Code as Codes

    tries = [
        {"time": iso(one.time_us), "outcome": one.outcome.name.lower(), "code": Codes(one.code).name}
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
        "code": Codes(letter.code).name,
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
