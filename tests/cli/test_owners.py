"""`reknit owners`, with a node that has rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import reknit
from reknit.cli.main import app
from reknit.processes.process import NodeProcess, ending
from tests.tokens import write_tokens

pytestmark = pytest.mark.real

RULES = "ann publish plant/**,ann subscribe plant/**,bob publish plant/**,root admin"


def test_owners_are_listed_and_given_to_others(tmp_path: Path) -> None:
    tokens = write_tokens(tmp_path / "tokens", {"ann": "a-token", "bob": "b-token", "root": "r-token"})
    node = NodeProcess(
        tmp_path, "--set", f"security.tokens_file={tokens}", "--set", f"security.allow={RULES}"
    )
    with ending(node):
        node.start()
        with (
            reknit.connect_sync(node.url, token="a-token", name="sensor") as ann,
            ann.subscribe("plant/**", name="audit"),
        ):
            ann.publish("plant/1", b"1")
        shell = CliRunner(env={"REKNIT_SECURITY__TOKEN": "r-token", "REKNIT_NODE": node.url})
        rows = json.loads(shell.invoke(app, ["owners", "list", "--json"]).output)
        [source] = [row["source"] for row in rows["sources"]]
        assert [row["owner"] for row in (*rows["sources"], *rows["subscribers"])] == ["ann", "ann"]
        given = shell.invoke(app, ["owners", "give", "bob", "--source", source])
        assert (given.exit_code, given.output) == (0, f"{source} belongs to bob\n")
        shown = shell.invoke(app, ["owners", "list"]).output
        assert "bob" in shown
        assert "subscriber audit" in shown
        wrong = shell.invoke(app, ["owners", "give", "bob"])
        assert (wrong.exit_code, "either --source or --subscriber" in wrong.output) == (1, True)
