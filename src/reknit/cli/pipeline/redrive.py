"""Carries out `reknit pipeline redrive`."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

from reknit.cli.output import print_json, say
from reknit.cli.pipeline.options import LakeRoot, SparkOptions
from reknit.cli.pipeline.spark_session import access, open_lake
from reknit.cli.running import node_url
from reknit.spark.sink.options import SinkOptions
from reknit.spark.stages.redrive import RedriveReport, parse_rate, redrive


def sink_options(node: str) -> SinkOptions:
    """Where to publish."""
    token, tls = access()
    return SinkOptions(
        (node_url(node),),
        token=token,
        tls_ca_file=tls.ca,
        tls_cert_file=tls.cert,
        tls_key_file=tls.key,
    )


def redrive_letters(
    lake: LakeRoot,
    on: SparkOptions,
    to: SinkOptions,
    where: str,
    rate: str,
    ttl_ms: int | None,
    is_dry: bool,
    as_json: bool,
) -> None:
    """Publish the matching dead letters again, and print how many."""
    limit, show = parse_rate(rate), _progress(is_quiet=as_json)
    with open_lake(lake, on) as (spark, folder):
        done = redrive(spark, folder, to, where, limit, is_dry, show, ttl_ms)
    if as_json:
        print_json(done)
    else:
        _print_report(done)


def _print_report(done: RedriveReport) -> None:
    for topic, count in done.topics.items():
        typer.echo(f"{topic}: {count:,}")
    verb = "would be published" if done.is_dry else "published"
    count = done.chosen if done.is_dry else done.published
    typer.echo(f"{count:,} dead letters {verb}, {done.already:,} had been before")
    if done.refused:
        say(
            f"{done.refused:,} can't be published again as they were: their payloads are not in the dead letters "
            "(topics.dead_letter_payload), or an older reknit captured them without the other fields; "
            "`reknit dead-letters` shows what their nodes still have"
        )


def _progress(is_quiet: bool) -> Callable[[int, int], None] | None:
    if is_quiet or not sys.stderr.isatty():
        return None

    def show(done: int, total: int) -> None:
        typer.echo(f"\r{done:,} of {total:,}", err=True, nl=done >= total)

    return show
