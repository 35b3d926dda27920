"""Each option of each command of `reknit pipeline` arrives where the work is done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from reknit.cli.main import app
from reknit.cli.pipeline import maintenance, pipeline_run, redrive, reports
from reknit.cli.pipeline.commands import app as commands
from reknit.spark.pipeline.pipeline import PipelineSettings

SPARK: Final = [
    (["--master", "local[3]"], lambda done: done[1].master == "local[3]"),
]
MORE_SPARK: Final = [
    *SPARK,
    (["--memory", "3g"], lambda done: done[1].memory == "3g"),
    (["--conf", "a=b", "--conf", "c=d"], lambda done: done[1].conf == ["a=b", "c=d"]),
]
COMMON: Final = [
    (["--lake", "s3://bucket/there"], lambda done: done[0] == "s3://bucket/there"),
    (["--lake", "there"], lambda done: done[0] == Path("there")),
    (["--json"], lambda done: done[-1] is True),
]
Case = tuple[list[str], Callable[[Any], bool]]


def setting(name: str, value: Any) -> Callable[[Any], bool]:
    def holds(done: Any) -> bool:
        return bool(getattr(done[2], name) == value)

    return holds


CASES: Final[dict[str, list[Case]]] = {
    "run": [
        (["--lake", "there"], lambda done: done[0] == Path("there")),
        (["--json"], lambda done: done[3] is True),
        *MORE_SPARK,
        (["--nodes", "a:1, tls://b:2"], setting("nodes", ("tcp://a:1", "tls://b:2"))),
        (["--once"], setting("is_once", True)),
        (["--topics", "plant/**"], setting("topics", "plant/**")),
        (["--grace", "5"], setting("grace_s", 5.0)),
        (["--interval", "7"], setting("interval_s", 7.0)),
        (["--events"], setting("events", True)),
        (["--no-events"], setting("events", False)),
        (["--archive", "x", "--archive", "y"], setting("archives", ("x", "y"))),
        (["--allow-missing"], setting("allow_missing", True)),
        (["--dead-letter-topic", "my/dead"], setting("dead_letter_topics", ("my/dead",))),
        (["--work", "here"], lambda done: done[4] == Path("here")),
        (["--lineage", "a.jsonl"], setting("lineage", "a.jsonl")),
        (["--data-loss", "go-on"], setting("fail_on_data_loss", False)),
    ],
    "audit": [
        *COMMON,
        *MORE_SPARK,
        (["--report", "a.html"], lambda done: done[2] == Path("a.html")),
        (["--window", "60"], lambda done: done[3] == 60),
        (["--accept-losses", "all"], lambda done: done[4] == ["all"]),
    ],
    "losses": [
        *COMMON,
        *SPARK,
        (["--topic", "a"], lambda done: done[2] == "a"),
        (["--limit", "3"], lambda done: done[3] == 3),
    ],
    "dead-letters": [
        *COMMON,
        *SPARK,
        (["--by", "code"], lambda done: done[2] == "code"),
        (["--where", "code = 4"], lambda done: done[3] == "code = 4"),
        (["--limit", "3"], lambda done: done[4] == 3),
    ],
    "latency": [*COMMON, *SPARK, (["--by", "topic"], lambda done: done[2] == "topic")],
    "redrive": [
        *COMMON,
        *SPARK,
        (["--node", "a:1"], lambda done: done[2].nodes == ("tcp://a:1",)),
        (["--where", "code = 4"], lambda done: done[3] == "code = 4"),
        (["--rate", "5/s"], lambda done: done[4] == "5/s"),
        (["--ttl", "0"], lambda done: done[5] == 0),
        (["--dry-run"], lambda done: done[6] is True),
    ],
    "compact": [*COMMON, (["--keep", "5"], lambda done: done[1] == 5.0)],
    "expire": [
        *COMMON,
        (["--before", "2026-01-02"], lambda done: done[1] == "2026-01-02"),
        (["--older-than", "1", "--before", "2026-01-02"], lambda done: done[1] > "2026-01-02"),
        (["--table", "events", "--table", "late"], lambda done: done[2] == ["events", "late"]),
        (["--keep", "5"], lambda done: done[3] == 5.0),
    ],
    "migrate": COMMON,
}
WORK: Final = {
    "run": (pipeline_run, "run_pipeline"),
    "audit": (reports, "report_audit"),
    "losses": (reports, "report_losses"),
    "dead-letters": (reports, "report_dead_letters"),
    "latency": (reports, "report_latency"),
    "redrive": (redrive, "redrive_letters"),
    "compact": (maintenance, "compact_lake"),
    "expire": (maintenance, "expire_days"),
    "migrate": (maintenance, "migrate_lake"),
}


@pytest.mark.parametrize(
    ("command", "args", "holds"),
    [(name, args, holds) for name, cases in CASES.items() for args, holds in cases],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_option_arrives(
    monkeypatch: pytest.MonkeyPatch, command: str, args: list[str], holds: Callable[[Any], bool]
) -> None:
    done: list[Any] = []
    module, name = WORK[command]

    def work(*values: Any) -> bool:
        done.append(values)
        return True

    monkeypatch.setattr(module, name, work)
    needed = ["--before", "2026-01-02"] if command == "expire" and "--before" not in args else []
    result = CliRunner().invoke(app, ["pipeline", command, *needed, *args])
    assert result.exit_code == 0, result.output
    [values] = done
    if command == "run":
        lake, options, spark, as_json = values
        values = (lake, spark, pipeline_run._settings(options), as_json, options.work)
        assert isinstance(values[2], PipelineSettings)
    assert holds(values), values


def test_every_option_of_every_command_is_tried() -> None:
    for name, command in get_command(commands).commands.items():  # type: ignore[attr-defined]
        tried = {word for args, _ in CASES[name] for word in args if word.startswith("--")}
        declared = {option for one in command.params for option in [*one.opts, *one.secondary_opts]}
        assert declared == tried, name
