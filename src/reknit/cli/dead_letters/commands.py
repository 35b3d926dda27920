"""The commands of `reknit dead-letters`."""

from __future__ import annotations

from typing import Annotated

import typer

from reknit.cli.dead_letters.filters import FilterOptions
from reknit.cli.options import AsJson, NodeUrl, with_options
from reknit.cli.output import dead_letters, fail, log_to_stderr, plain, print_json

app = typer.Typer(help="List, redrive and drop events that ended undelivered.", no_args_is_help=True)

Limit = Annotated[
    int, typer.Option(min=0, metavar="N", help="List only the newest N dead letters; 0: all of them.")
]
Number = Annotated[int, typer.Argument(metavar="NO", min=1, help="The dead letter's number in the list.")]
Rate = Annotated[
    str, typer.Option("--rate", metavar="N/s", help="The highest rate, such as 30/min; 0: no limit.")
]
ClearTtl = Annotated[
    bool,
    typer.Option("--clear-ttl", help="Publish events that never expire; otherwise their ttl starts again."),
]
To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="all|subscriber",
        help="Deliver each event to every subscriber of its topic, or only to the one that it failed at.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count the dead letters.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@app.command("list")
@with_options
def list_(chosen: FilterOptions, limit: Limit = 20, json: AsJson = False, node: NodeUrl = "") -> None:
    """List the dead letters that are waiting, the newest last."""
    from reknit.cli.dead_letters.output import as_json, print_table
    from reknit.cli.dead_letters.requests import newest, print_all
    from reknit.cli.dead_letters.selection import selection
    from reknit.cli.running import run

    log_to_stderr()
    wanted = selection(chosen)
    if limit == 0:
        run(print_all(node, wanted, json))
        return
    found, waiting = run(newest(node, wanted, limit))
    if json:
        print_json([as_json(number, letter) for number, letter in found])
    elif not found:
        typer.echo(f"none of {dead_letters(waiting)} matches" if waiting else "no dead letters")
    else:
        print_table(found)
        if waiting > len(found):
            typer.echo(f"{len(found):,} of {dead_letters(waiting)}; --limit shows more")


@app.command()
def show(number: Number, json: AsJson = False, node: NodeUrl = "") -> None:
    """Show one dead letter, with the event's payload and every attempt."""
    from reknit.cli.dead_letters.output import as_json, print_fields
    from reknit.cli.dead_letters.requests import find
    from reknit.cli.running import run

    log_to_stderr()
    found = run(find(node, number))
    if found is None:
        fail(f"there is no dead letter {number}: `reknit dead-letters list` shows the numbers")
    row = as_json(number, found)
    if json:
        print_json(row)
    else:
        print_fields(row)


@app.command()
@with_options
def redrive(
    chosen: FilterOptions,
    rate: Rate = "1000/s",
    to: To = "all",
    clear_ttl: ClearTtl = False,
    dry_run: DryRun = False,
    json: AsJson = False,
    node: NodeUrl = "",
) -> None:
    """Publish dead letters again on their own topics: each once, no matter how often this is run."""
    from reknit.cli.dead_letters import requests
    from reknit.cli.dead_letters.selection import events_per_second, selection
    from reknit.cli.running import run

    log_to_stderr()
    if to not in ("all", "subscriber"):
        fail(f"invalid --to {to!r}: write all or subscriber")
    options = {"clears_ttl": clear_ttl, "to_subscriber": to == "subscriber", "is_dry": dry_run}
    total = run(requests.redrive(node, selection(chosen), rate=events_per_second(rate), **options))
    if json:
        print_json({**total, "is_dry": dry_run})
        return
    for name, count in sorted(total["topics"].items()):
        typer.echo(f"{plain(name)}: {count:,}")
    typer.echo(f"{dead_letters(total['count'])} {'would be ' if dry_run else ''}redriven")
    if total["without_payload"]:
        typer.echo(f"{dead_letters(total['without_payload'])} without a payload: not redriven")
    if total["without_subscriber"]:
        count = dead_letters(total["without_subscriber"])
        typer.echo(f"{count} without a durable subscriber to go to: not redriven (--to all)")


@app.command()
@with_options
def drop(
    chosen: FilterOptions,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: AsJson = False,
    node: NodeUrl = "",
) -> None:
    """Drop dead letters permanently."""
    from reknit.cli.dead_letters import requests
    from reknit.cli.dead_letters.selection import selection
    from reknit.cli.running import run

    log_to_stderr()
    wanted = selection(chosen)
    if not dry_run and not yes:
        count = run(requests.drop(node, wanted, is_dry=True))
        typer.confirm(f"Drop {dead_letters(count)} permanently?", abort=True)
    count = run(requests.drop(node, wanted, is_dry=dry_run))
    if json:
        print_json({"count": count, "is_dry": dry_run})
    else:
        typer.echo(f"{dead_letters(count)} {'would be ' if dry_run else ''}dropped")
