"""The commands of `reknit pipeline`."""

from __future__ import annotations

import typer

from reknit.cli.pipeline.maintain import compact, expire, redrive
from reknit.cli.pipeline.run import run
from reknit.cli.pipeline.show import audit, dead_letters, latency, losses

app = typer.Typer(
    help="Capture events and outcomes into tables with Spark, and audit them.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command in (run, audit, losses, dead_letters, latency, redrive, compact, expire):
    app.command(command.__name__.replace("_", "-"))(command)
