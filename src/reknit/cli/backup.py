"""`reknit backup` and `reknit restore`: copy a node's data, and start again from a copy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reknit.cli.options import AsJson
from reknit.cli.output import print_json, size
from reknit.cli.progress import with_progress

Backup = Annotated[Path, typer.Argument(metavar="DIR", help="The directory of the backup.")]
Data = Annotated[
    Path, typer.Option("--data", metavar="DIR", help="The node's data directory (node.data_dir).")
]
DATA = Path("reknit-data")


def backup(directory: Backup, data: Data = DATA, json: AsJson = False) -> None:
    """Copy a node's data into a directory, and check every checksum of the copy. The node may be running.

    Later backups into the same directory copy only what is new. If one is interrupted, the directory still has the
    backup before it.
    """
    import msgspec

    from reknit.store.directory.backup import back_up

    report = with_progress("copied", lambda on_progress: back_up(data, directory, on_progress))
    if json:
        print_json(msgspec.to_builtins(report))
        return
    typer.echo(f"copied {size(report.copied_bytes)}")
    typer.echo(f"{directory} holds {report.events:,} events in {size(report.bytes)}, every checksum checked")


def restore(directory: Backup, data: Data = DATA, json: AsJson = False) -> None:
    """Make a data directory of a backup, and check every checksum of it. It must not exist, or be empty.

    The restored node has a new epoch: clients that remember a place in its journal are told that it is gone.
    """
    import msgspec

    from reknit.store.directory.backup import restore as restore_directory

    report = with_progress("copied", lambda on_progress: restore_directory(directory, data, on_progress))
    if json:
        print_json(msgspec.to_builtins(report))
        return
    typer.echo(f"restored {report.events:,} events in {size(report.bytes)} to {data}")
