"""The `reknit` command line: every command, and the errors that end one.

The modules of the commands import nothing heavy at the top: a command loads what it needs when it runs.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from reknit.cli import (
    audit,
    backup,
    config,
    doctor,
    journal,
    ledger,
    link,
    owners,
    queues,
    route,
    scheduled,
    token,
    topic,
    trail,
)
from reknit.cli.dead_letters import commands as dead_letters
from reknit.cli.demo import command as demo
from reknit.cli.events import pub, sub
from reknit.cli.group import commands as group
from reknit.cli.output import explained, fail
from reknit.cli.pipeline import commands as pipeline
from reknit.cli.rpc import commands as rpc
from reknit.cli.status import command as status
from reknit.cli.up import command as up
from reknit.version import __version__


class Commands(TyperGroup):
    """Turns the errors that reknit raises into one line and exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        from reknit.errors import ReknitError

        try:
            return super().invoke(ctx)
        except ReknitError as error:
            fail(explained(error))
        except BrokenPipeError:  # the program that read our output has closed it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except OSError as error:
            fail(explained(error))


app = typer.Typer(
    cls=Commands,
    name="reknit",
    help="An event fabric: every event arrives, or you are told why.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"reknit {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Options before the command."""


app.command("up")(up.up)
app.command("pub")(pub.pub)
app.command("sub")(sub.sub)
app.command("request")(rpc.request)
app.command("serve")(rpc.serve)
app.command("status")(status.status)
app.command("ledger")(ledger.ledger)
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)
app.command("queues")(queues.queues)
app.command("trail")(trail.trail)
app.command("audit")(audit.audit)
app.command("backup")(backup.backup)
app.command("restore")(backup.restore)
app.add_typer(dead_letters.app, name="dead-letters")
app.add_typer(config.app, name="config")
app.add_typer(journal.app, name="journal")
app.add_typer(group.app, name="group")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(link.app, name="link")
app.add_typer(route.app, name="route")
app.add_typer(topic.app, name="topic")
app.add_typer(owners.app, name="owners")
app.add_typer(scheduled.app, name="scheduled")
app.add_typer(token.app, name="token")


def main() -> None:
    """Run the command line; the console script calls this."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that knows only ASCII gets escapes, not an error
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app()
