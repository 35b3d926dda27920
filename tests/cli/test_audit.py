"""`reknit audit`, with a node that has rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reknit.cli.main import app
from reknit.processes.process import NodeProcess, ending
from tests.tokens import write_tokens

pytestmark = pytest.mark.real

RULES = "eye subscribe reknit/audit,root admin"


def test_the_trail_is_printed_for_people_and_as_json(tmp_path: Path) -> None:
    tokens = write_tokens(tmp_path / "tokens", {"eye": "e-token", "root": "r-token"})
    rules = ("--set", f"security.tokens_file={tokens}", "--set", f"security.allow={RULES}")
    node = NodeProcess(tmp_path, *rules)
    with ending(node):
        node.start()

        def shell(token: str, *words: str) -> tuple[int, str]:
            runner = CliRunner(env={"REKNIT_SECURITY__TOKEN": token, "REKNIT_NODE": node.url})
            made = runner.invoke(app, [*words])
            return made.exit_code, made.output

        assert shell("r-token", "topic", "pause", "plant/**")[0] == 0
        assert shell("wrong", "status")[0] == 1
        assert shell("r-token", "audit")[0] == 1, "it needs the right to subscribe"
        code, text = shell("e-token", "audit")
        assert code == 0
        lines = text.splitlines()
        assert any("root  order pause  OK  tcp from 127.0.0.1  pattern=plant/**" in line for line in lines)
        rows = [json.loads(line) for line in shell("e-token", "audit", "--json")[1].splitlines()]
        refused = [(row["kind"], row["who"]) for row in rows if row["code"] != "OK"]
        assert refused == [("login", "anonymous"), ("refusal", "root")]
        assert {row["version"] for row in rows} == {1}


def test_a_node_without_a_trail_prints_nothing(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path)
    with ending(node):
        node.start()
        made = CliRunner(env={"REKNIT_NODE": node.url}).invoke(app, ["audit"])
        assert (made.exit_code, made.output) == (0, "")
