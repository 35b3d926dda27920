"""The output of commands, without a node."""

from __future__ import annotations

import io
from io import StringIO
from typing import Any, cast

import pytest
from rich.console import Console
from typer.testing import CliRunner

from reknit.batch import Batch
from reknit.cli import running
from reknit.cli.events.event_output import JsonLines, Lines, RawLines
from reknit.cli.main import app
from reknit.cli.status.screen import screen

runner = CliRunner()

ROW = {
    "subscriber": "audit",
    "topic": "plant/[red]",
    "published": 10,
    "accepted": 9,
    "dead_lettered": 0,
    "lost": 0,
    "in_flight": 1,
    "problems": [],
    "balanced": True,
}
STATUS = {
    "node": "plant",
    "version": "1",
    "listen": ["tcp://127.0.0.1:7440"],
    "uptime_s": 3700.0,
    "cpu_s": 1.0,
    "rss_bytes": 1 << 20,
    "data_dir": None,
    "journal": {"events": 10, "bytes": 2048},
    "intake": {"duplicates": 3, "is_full": True, "why": "disk full"},
    "peers": [],
    "topics": [{"topic": f"t/{n}", "events": 1, "rate": 0.0, "sources": 1, "gaps": n % 2} for n in range(40)],
    "subscribers": [
        {"name": "audit", "pattern": "**", "state": "away", "waiting_bytes": 9, "unsettled": 0, "peer": ""}
    ],
}


LEDGER = {
    "mood": "good",
    "sentence": "Every event is accounted for",
    "totals": {
        "published": 1_234_567,
        "accepted": 1_234_560,
        "dead_lettered": 5,
        "lost": 0,
        "in_flight": 2,
    },
}


def answering(monkeypatch: pytest.MonkeyPatch, body: Any) -> None:
    async def asked(url: str, what: str, **args: Any) -> Any:
        return LEDGER if what == "ledger_page" else body

    async def asked_ledger(url: str, topic: str, unbalanced: bool) -> Any:
        return body

    monkeypatch.setattr(running, "asked", asked)
    monkeypatch.setattr(running, "asked_ledger", asked_ledger)


def test_a_balanced_ledger_exits_with_0(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, [ROW])
    result = runner.invoke(app, ["ledger"])
    assert result.exit_code == 0
    assert "plant/[red]" in result.stdout


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_ledger_that_does_not_balance_names_the_problem(
    monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    answering(
        monkeypatch, [{**ROW, "balanced": False, "problems": ["aa [3, 7) has no end and nobody has it"]}]
    )
    result = runner.invoke(app, ["ledger", *flags])
    assert result.exit_code == 1
    assert "[3, 7) has no end" in result.stdout


def test_an_empty_ledger_says_how_to_fill_it(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, [])
    result = runner.invoke(app, ["ledger"])
    assert result.exit_code == 0
    assert "--name" in result.stdout


def test_status_shows_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, STATUS)
    text = runner.invoke(app, ["status"]).stdout
    assert "Every event is accounted for" in text
    assert "publishers wait" in text
    assert "3 duplicates dropped" in text
    assert "away" in text
    assert "and 10 more" in text


def test_numbers_stay_whole_on_a_narrow_terminal() -> None:
    topics = [{"topic": "plant/line1/temp", "events": 1_234_567, "rate": 12_345.0, "sources": 3, "gaps": 0}]
    body = {**STATUS, "topics": topics, "ledger": LEDGER, "peers": []}
    console = Console(width=40, file=StringIO())
    console.print(screen(body, console.width))
    lines = cast(StringIO, console.file).getvalue().splitlines()
    assert max(map(len, lines)) <= 40
    for number in ("1,234,567 published", "1,234,560 accepted", "1,234,567", "12,345"):
        assert any(number in line.replace("\u00a0", " ") for line in lines), number


def test_printers_remember_their_checkpoint() -> None:
    batch = Batch.build(bytes(16), "a", 7, [b"x\x1b", b"\xff"], time_us=0)
    for kind in (RawLines, JsonLines):
        out = io.BytesIO()
        printer = kind(out)
        printer.write(batch)
        assert out.getvalue().count(b"\n") == 2
        assert printer.checkpoint is not None
        assert printer.checkpoint.get(bytes(16)) == 8


def test_lines_for_people_are_plain() -> None:
    out = io.BytesIO()
    Lines(out, is_terminal=False).write(Batch.build(bytes(16), "a", 7, [b"x\x1b", b"\xff"], time_us=0))
    first, second = out.getvalue().decode().splitlines()
    assert first.split()[1:] == ["a", "7", "x\\x1b"]
    assert second.split()[1:] == ["a", "8", "\\xff"]
