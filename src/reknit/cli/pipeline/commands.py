"""The commands of `reknit pipeline`."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from reknit.cli.options import AsJson, with_options
from reknit.cli.output import FAILED, fail
from reknit.cli.pipeline import options as opt
from reknit.cli.pipeline.options import LAKE, LOCAL, SparkOptions


class PipelineCommands(TyperGroup):
    """Says how to install Spark if it is missing."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            missing = str(error.name).partition(".")[0]
            fail(f"the pipeline needs Spark ({missing} is not installed): pip install 'reknit[spark]'")


app = typer.Typer(
    cls=PipelineCommands,
    help="Capture events and outcomes into tables with Spark, and audit them.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
@with_options
def run(
    *, lake: opt.LakeDir = LAKE, options: opt.RunOptions, spark: SparkOptions, as_json: AsJson = False
) -> None:
    """Capture journals into the lake's tables, exactly once. You can stop it with Ctrl-C and start it again.

    Stages: capture (batches, outcomes), settle (each event once and in order, gaps, losses), events, dead letters.
    """
    if options.data_loss not in ("fail", "go-on"):
        fail(f"--data-loss {options.data_loss!r} is not valid: use fail or go-on")
    from reknit.cli.pipeline.pipeline_run import run_pipeline

    run_pipeline(lake, options, spark, as_json)


@app.command()
@with_options
def audit(
    *,
    lake: opt.LakeDir = LAKE,
    report: opt.ReportFile = None,
    window: opt.WindowS = 3600,
    accept_losses: opt.AcceptedLosses = [],  # noqa: B006
    spark: SparkOptions,
    as_json: AsJson = False,
) -> None:
    """Check the ledger: published = accepted + dead-lettered + lost + in flight.

    The exit code is 1 if it does not balance, or if events are lost and nobody has accepted that.
    """
    from reknit.cli.pipeline.reports import report_audit

    if not report_audit(lake, spark, report, window, accept_losses, as_json):
        raise typer.Exit(FAILED)


@app.command()
def losses(
    lake: opt.LakeDir = LAKE,
    topic: opt.Topic = "",
    limit: opt.Limit = 1000,
    master: opt.Master = LOCAL,
    as_json: AsJson = False,
) -> None:
    """List lost events by range: events that have seqs but are in no journal and no archive."""
    from reknit.cli.pipeline.reports import report_losses

    report_losses(lake, SparkOptions(master), topic, limit, as_json)


@app.command()
def dead_letters(
    lake: opt.LakeDir = LAKE,
    by: opt.DeadLettersBy = "reason,topic,subscriber",
    where: opt.CountedDeadLetters = "",
    limit: opt.Limit = 1000,
    master: opt.Master = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Count dead letters by reason, code, topic, subscriber or time."""
    from reknit.cli.pipeline.reports import report_dead_letters

    report_dead_letters(lake, SparkOptions(master), by, where, limit, as_json)


@app.command()
def latency(
    lake: opt.LakeDir = LAKE,
    by: opt.LatencyBy = "subscriber,topic",
    master: opt.Master = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Show the time from publishing to acceptance: quantiles, in milliseconds."""
    from reknit.cli.pipeline.reports import report_latency

    report_latency(lake, SparkOptions(master), by, as_json)


@app.command()
def redrive(
    lake: opt.LakeDir = LAKE,
    node: opt.RedriveNode = "",
    where: opt.RedrivenDeadLetters = "",
    rate: opt.Rate = "1000/s",
    ttl: opt.Ttl = None,
    dry_run: opt.DryRun = False,
    master: opt.Master = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Publish dead letters again on their own topics, each once, however often you run this."""
    from reknit.cli.pipeline.redrive import redrive_letters, sink_options

    redrive_letters(lake, SparkOptions(master), sink_options(node), where, rate, ttl, dry_run, as_json)


@app.command()
def compact(lake: opt.LakeDir = LAKE, keep: opt.KeepReplacedS = 3600.0, as_json: AsJson = False) -> None:
    """Merge small files into larger ones. Safe while the pipeline runs; needs no Spark."""
    from reknit.cli.pipeline.maintenance import compact_lake

    compact_lake(lake, keep, as_json)


@app.command()
def expire(
    lake: opt.LakeDir = LAKE,
    before: opt.Before = "",
    older_than: opt.OlderThan = None,
    table: opt.ExpiringTables = [],  # noqa: B006
    keep: opt.KeepRemovedS = 3600.0,
    as_json: AsJson = False,
) -> None:
    """Remove old days from the tables. Safe while the pipeline runs; needs no Spark."""
    from reknit.cli.pipeline.maintenance import expire_days, first_day

    expire_days(lake, first_day(before, older_than), table, keep, as_json)


@app.command()
def migrate(lake: opt.LakeDir = LAKE, as_json: AsJson = False) -> None:
    """Bring over a lake that an older reknit wrote. Its Parquet files stay where they are; needs no Spark."""
    from reknit.cli.pipeline.maintenance import migrate_lake

    migrate_lake(lake, as_json)
