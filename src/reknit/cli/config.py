"""`reknit config`: show every setting and its origin, and check a configuration file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reknit.cli.options import AsJson, ConfigFile, SetSettings
from reknit.cli.output import counted, fail, print_json
from reknit.cli.settings import parsed

if TYPE_CHECKING:
    from reknit.config import Config

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
        from reknit.cli.tables import cell, console, table

        made = table(("setting", "value", "from", "description"), ())
        for row in describe(settings):
            style = "" if row.origin == "default" else "bold"
            made.add_row(row.name, cell(row.value), cell(row.origin), cell(row.doc), style=style)
        console().print(made)


@app.command()
def check(json: AsJson = False, config: ConfigFile = None, set_: SetSettings = None) -> None:
    """Check the settings in the file, the environment and the flags.

    The exit code is 1 if a setting is unknown or invalid, or names a file that can't be read.
    """
    from reknit.config import describe, load

    settings = load(config, overrides=parsed(set_ or []))
    for name, why in unreadable(settings):
        fail(f"setting {name}: {why}")
    changed = [row for row in describe(settings) if row.value != row.default]
    if json:
        print_json([row._asdict() for row in changed])
        return
    for row in changed:
        typer.echo(f"{row.name} = {row.value}  (from {row.origin})")
    verb = "differs from its default" if len(changed) == 1 else "differ from their defaults"
    typer.echo(
        f"ok: {counted(len(changed), 'setting')} {verb}"
        if changed
        else "ok: all settings have their defaults"
    )


def unreadable(settings: Config) -> Iterator[tuple[str, str]]:
    """The settings that name a file which can't be read, and why."""
    for section in fields(settings):
        for name in getattr(getattr(settings, section.name), "__slots__", ()):
            value = getattr(getattr(settings, section.name), name, None)
            if name.endswith("_file") and isinstance(value, str | Path) and str(value):
                try:
                    open(value, "rb").close()
                except OSError as error:
                    yield f"{section.name}.{name}", f"{error.strerror}: {value}"


@app.command()
def path(json: AsJson = False, config: ConfigFile = None) -> None:
    """Print the path of the settings file.

    The exit code is 1 if the file does not exist. Then only the environment and flags change the defaults.
    """
    import os

    found = config or Path(os.environ.get("REKNIT_CONFIG") or "reknit.toml")
    if json:
        print_json({"path": str(found.absolute()), "exists": found.exists()})
    else:
        typer.echo(found.absolute())
    if not found.exists():
        raise typer.Exit(1)
