"""`reknit journal`: inspect and check the files of a journal, and repair damage."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reknit.cli.options import AsJson
from reknit.cli.output import print_json, size
from reknit.cli.progress import with_progress

app = typer.Typer(
    help="Inspect and check the files of a journal, and repair damage.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Data = Annotated[Path, typer.Argument(metavar="[DIR]", help="The node's data directory (node.data_dir).")]
DATA = Path("reknit-data")


@app.command()
def show(data: Data = DATA, json: AsJson = False) -> None:
    """Show what a journal holds. The node may be running."""
    import msgspec

    from reknit.store.reader import open_reader

    reader = open_reader(data)
    try:
        held = reader.status()
    finally:
        reader.close()
    if json:
        print_json(msgspec.to_builtins(held))
        return
    typer.echo(
        f"{held.events:,} events of {held.streams:,} sources in {size(held.bytes)}, {held.segments} files"
    )
    typer.echo(f"positions {held.start} to {held.end}")


@app.command()
def verify(data: Data = DATA, json: AsJson = False) -> None:
    """Check every checksum of a journal. The node may be running; nothing is changed.

    The exit code is 1 if something is damaged.
    """
    import msgspec

    from reknit.store.directory.verification import verify_journal

    found = with_progress("checked", lambda on_progress: verify_journal(data, on_progress))
    if json:
        print_json({**msgspec.to_builtins(found), "is_sound": found.is_sound})
    else:
        for damage in found.damages:
            typer.echo(f"damaged: {damage}")
        if found.index_damage:
            typer.echo(f"damaged: the index: {found.index_damage}; the node rebuilds it when it starts")
        checked = f"{found.events:,} events and {found.records:,} records in {size(found.bytes)}"
        typer.echo(f"{'checked' if found.is_sound else 'valid'}: {checked}")
    if not found.is_sound:
        raise typer.Exit(1)


@app.command()
def repair(data: Data = DATA, json: AsJson = False) -> None:
    """Move damaged parts out of a journal, and report the events that are gone. The node must be stopped.

    Damaged parts are moved to files beside the log, never deleted.
    """
    import msgspec

    from reknit.store.directory.repair import repair as repair_directory

    report = repair_directory(data)
    if json:
        print_json(msgspec.to_builtins(report))
    else:
        typer.echo(str(report))
