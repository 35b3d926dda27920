"""`reknit config`: every setting, where it comes from, and whether a file is right."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reknit.cli.options import AsJson
from reknit.cli.output import cell, print_json, table
from reknit.cli.settings import parsed

app = typer.Typer(help="Show and check settings.", no_args_is_help=True)

File = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings.  [default: ./reknit.toml if there is one]"),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="One setting; may be repeated."),
]


@app.command()
def show(
    toml: Annotated[
        bool, typer.Option("--toml", help="Print a file with every setting, to start from.")
    ] = False,
    json: AsJson = False,
    config: File = None,
    set_: Sets = None,
) -> None:
    """Show every setting, its value and where that comes from."""
    from reknit.config import describe, load

    settings = load(config, overrides=parsed(set_ or []))
    if toml:
        typer.echo(settings.to_toml(), nl=False)
    elif json:
        print_json([row._asdict() for row in describe(settings)])
    else:
        from rich.console import Console

        made = table(("setting", "value", "from", "what it is"), ())
        for row in describe(settings):
            style = "" if row.origin == "default" else "bold"
            made.add_row(row.name, cell(row.value), cell(row.origin), cell(row.doc), style=style)
        Console(highlight=False).print(made)


@app.command()
def check(config: File = None, set_: Sets = None) -> None:
    """Check file, environment and flags.

    The exit code is 1 where a setting is unknown or wrong.
    """
    from reknit.config import describe, load

    settings = load(config, overrides=parsed(set_ or []))
    changed = [row for row in describe(settings) if row.value != row.default]
    for row in changed:
        typer.echo(f"{row.name} = {row.value}  (from {row.origin})")
    typer.echo(f"ok: {len(changed)} not at their defaults" if changed else "ok: all at their defaults")


@app.command()
def path(config: File = None) -> None:
    """Print the file that is read.

    The exit code is 1 if there is none: then only environment and flags count.
    """
    import os

    found = config or Path(os.environ.get("REKNIT_CONFIG") or "reknit.toml")
    typer.echo(found.absolute())
    if not found.exists():
        raise typer.Exit(1)
