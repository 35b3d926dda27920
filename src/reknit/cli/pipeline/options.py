"""The options of the commands of `reknit pipeline`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

# -- the lake, and Spark


def lake_location(text: str | Path) -> Path | str:
    """Where a lake is: a folder, or an address in an object store."""
    return text if isinstance(text, str) and "://" in text else Path(text)


LakeRoot = Path | str
LakeDir = Annotated[
    Any,
    typer.Option(
        "--lake",
        metavar="DIR|URL",
        parser=lake_location,
        help="The lake: the folder with the tables, or s3://bucket/path.",
    ),
]
Master = Annotated[
    str,
    typer.Option("--master", metavar="URL", help="Where Spark runs: local[*], local[2], spark://host:7077 …"),
]

LAKE = Path("lake")
LOCAL = "local[*]"


class SparkOptions(NamedTuple):
    """Where Spark runs, and how."""

    master: Master = LOCAL
    memory: Annotated[str, typer.Option("--memory", metavar="SIZE", help="Memory for Spark's driver.")] = "2g"
    conf: Annotated[
        list[str], typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting; can be repeated.")
    ] = []  # noqa: RUF012


class RunOptions(NamedTuple):
    """What the pipeline captures, and how."""

    nodes: Annotated[
        str,
        typer.Option(
            "--nodes",
            metavar="URL,…",
            envvar="REKNIT_NODES",
            help="The nodes whose journals to read.  [default: the configured node]",
        ),
    ] = ""
    once: Annotated[bool, typer.Option("--once", help="Process everything that is there now, then stop.")] = (
        False
    )
    topics: Annotated[
        str, typer.Option("--topics", metavar="PATTERN,…", help="Only these topics, and their dead letters.")
    ] = ""
    grace: Annotated[
        float | None,
        typer.Option(
            "--grace",
            metavar="SECONDS",
            min=0,
            help="How long a gap may wait to be filled.  [default: 60; with --once: 0]",
        ),
    ] = None
    interval: Annotated[
        float,
        typer.Option("--interval", metavar="SECONDS", min=0.1, help="How often to settle captured batches."),
    ] = 2.0
    events: Annotated[
        bool, typer.Option("--events/--no-events", help="Also write table `events`, with one row per event.")
    ] = True
    archive: Annotated[
        list[str],
        typer.Option(
            "--archive", metavar="DIR", help="Another lake to ask for missing events; can be repeated."
        ),
    ] = []  # noqa: RUF012
    allow_missing: Annotated[
        bool,
        typer.Option(
            "--allow-missing", help="With --once, also run if a node can't be reached: process the others."
        ),
    ] = False
    dead_letter_topic: Annotated[
        list[str],
        typer.Option(
            "--dead-letter-topic",
            metavar="TOPIC",
            help="A topic of dead letters, beside those that the nodes name; can be repeated.",
        ),
    ] = []  # noqa: RUF012
    work: Annotated[
        Path | None,
        typer.Option(
            "--work",
            metavar="DIR",
            help="Folder for checkpoints and locks of a lake in an object store.  [default: in ~/.local/state]",
        ),
    ] = None
    lineage: Annotated[
        str,
        typer.Option(
            "--lineage",
            metavar="URL|FILE",
            envvar="OPENLINEAGE_URL",
            help="Tell a server, or a file, what the run read and wrote: events of OpenLineage.",
        ),
    ] = ""
    data_loss: Annotated[
        str,
        typer.Option(
            "--data-loss",
            metavar="fail|go-on",
            help="What to do if retention removed events before they were read.",
        ),
    ] = "fail"


# -- reports

ReportFile = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Also write an HTML page with charts.")
]
WindowS = Annotated[
    int,
    typer.Option("--window", metavar="SECONDS", min=1, help="Length of the time windows in the report."),
]
AcceptedLosses = Annotated[
    list[str],
    typer.Option(
        "--accept-losses",
        metavar="RANGE",
        help="Record that a range may stay lost: as the audit prints it, or `all`; can be repeated.",
    ),
]
Topic = Annotated[str, typer.Option("--topic", help="Only this topic.")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="Show at most this many rows.")]
DeadLettersBy = Annotated[
    str,
    typer.Option(
        "--by",
        metavar="COLUMN,…",
        help="Group by some of reason, code, topic, subscriber, node, hour.",
    ),
]
CountedDeadLetters = Annotated[
    str, typer.Option("--where", metavar="SQL", help="Only dead letters that match this condition.")
]
LatencyBy = Annotated[
    str, typer.Option("--by", metavar="COLUMN,…", help="Group by some of node, subscriber, topic.")
]

# -- redrive

RedriveNode = Annotated[
    str,
    typer.Option(
        "--node", metavar="URL", envvar="REKNIT_NODE", help="Where to publish.  [default: as configured]"
    ),
]
RedrivenDeadLetters = Annotated[
    str,
    typer.Option("--where", metavar="SQL", help="Which dead letters, such as \"reason = 'egress_full'\"."),
]
Rate = Annotated[
    str, typer.Option("--rate", metavar="N/s", help="Publish at most this fast; 0: without a limit.")
]
Ttl = Annotated[
    int | None,
    typer.Option(
        "--ttl",
        metavar="MS",
        min=0,
        help="Time to live of the new events; 0: for ever.  [default: that of the original]",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be published.")]

# -- compact and expire

KeepReplacedS = Annotated[
    float,
    typer.Option("--keep", metavar="SECONDS", min=0, help="How long replaced files stay for readers."),
]
KeepRemovedS = Annotated[
    float,
    typer.Option("--keep", metavar="SECONDS", min=0, help="How long removed files stay for readers."),
]
Before = Annotated[
    str, typer.Option("--before", metavar="YYYY-MM-DD", help="Remove the days before this one.")
]
OlderThan = Annotated[
    int | None,
    typer.Option(
        "--older-than", metavar="DAYS", min=1, help="Remove days that are older (instead of --before)."
    ),
]
ExpiringTables = Annotated[
    list[str], typer.Option("--table", metavar="NAME", help="Only this table; can be repeated.")
]
