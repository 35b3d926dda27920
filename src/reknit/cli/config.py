"""`reknit config`: show every setting and its origin, and check a configuration file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reknit.cli.options import AsJson, ConfigFile, SetSettings
from reknit.cli.output import counted, print_json
from reknit.cli.settings import parsed

app = typer.Typer(help="Show and check settings.", no_args_is_help=True)


@app.command()
def show(
    toml: Annotated[bool, typer.Option("--toml", help="Print a settings file with every setting.")] = False,
    json: AsJson = False,
    config: ConfigFile = None,
    set_: SetSettings = None,
) -> None:
    """Show every setting with its value and its origin."""
    from reknit.config import describe, load

    settings = load(config, overrides=parsed(set_ or []))
    if toml:
        typer.echo(settings.to_toml(), nl=False)
    elif json:
        print_json([row._asdict() for row in describe(settings)])
    else:
        from rich.console import Console

        from reknit.cli.tables import cell, table

        made = table(("setting", "value", "from", "description"), ())
        for row in describe(settings):
            style = "" if row.origin == "default" else "bold"
            made.add_row(row.name, cell(row.value), cell(row.origin), cell(row.doc), style=style)
        Console(highlight=False).print(made)


@app.command()
def check(config: ConfigFile = None, set_: SetSettings = None) -> None:
    """Check the settings in the file, the environment and the flags.

    The exit code is 1 if a setting is unknown or invalid.
    """
    from reknit.config import describe, load

    settings = load(config, overrides=parsed(set_ or []))
    changed = [row for row in describe(settings) if row.value != row.default]
    for row in changed:
        typer.echo(f"{row.name} = {row.value}  (from {row.origin})")
    verb = "differs from its default" if len(changed) == 1 else "differ from their defaults"
    typer.echo(
        f"ok: {counted(len(changed), 'setting')} {verb}"
        if changed
        else "ok: all settings have their defaults"
    )


@app.command()
def path(config: ConfigFile = None) -> None:
    """Print the path of the settings file.

    The exit code is 1 if the file does not exist. Then only the environment and flags change the defaults.
    """
    import os

    found = config or Path(os.environ.get("REKNIT_CONFIG") or "reknit.toml")
    typer.echo(found.absolute())
    if not found.exists():
        raise typer.Exit(1)
