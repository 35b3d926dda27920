"""The commands of `reknit group key`."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="Make and replace the keys that the members of a group share.", no_args_is_help=True)

File = Annotated[str, typer.Argument(metavar="FILE", help="The file of keys; see group.key_file.")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The key's id, as `list` prints it.")]


@app.command()
def create(file: File) -> None:
    """Create a file with a new key that only you can read."""
    from reknit.cli.group.key_file import KeyFile

    typer.echo(f"key {KeyFile.create(file).name} is in {file}: copy the file to every member")


@app.command()
def add(file: File) -> None:
    """Add a new key that members accept and do not use yet."""
    from reknit.cli.group.key_file import KeyFile

    typer.echo(f"key {KeyFile(file).add().name} is accepted: copy {file} to every member, then use the key")


@app.command()
def use(file: File, key: Key) -> None:
    """Use a key for sending; the others are still accepted."""
    from reknit.cli.group.key_file import KeyFile

    KeyFile(file).use(key)
    typer.echo(f"key {key} is used: copy {file} to every member, then remove the other keys")


@app.command()
def remove(file: File, key: Key) -> None:
    """Remove a key: datagrams that are sealed with it are refused."""
    from reknit.cli.group.key_file import KeyFile

    KeyFile(file).remove(key)
    typer.echo(f"key {key} is removed: copy {file} to every member")


@app.command("list")
def list_keys(file: File) -> None:
    """List the ids of the keys: the used one first."""
    from reknit.cli.group.key_file import KeyFile

    for number, key in enumerate(KeyFile(file).keys):
        typer.echo(f"{key.name}\t{'accepted' if number else 'used'}")
