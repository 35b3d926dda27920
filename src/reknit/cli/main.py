"""The `reknit` command line."""

from typing import Annotated

import typer

import reknit

app = typer.Typer(help="An event fabric: every event arrives, or you are told why.", no_args_is_help=True)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"reknit {reknit.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and leave."
        ),
    ] = False,
) -> None:
    """Options that stand before every command."""


def main() -> None:
    """Run the command line; the console script calls this."""
    app()
