"""The pages on addresses, requests and permission: their examples run, and the tests that they name are there."""

from __future__ import annotations

import doctest
import re
import tomllib
from pathlib import Path

from reknit.protocol.rpc.open_requests import CODES
from reknit.topic import Pattern
from reknit.trust.rules import Rules

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_reference_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/reference/dispatching-rpc.md").read_text()))
    written = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)
    }
    assert named - written == set()
    assert len(named) > 50


def test_every_code_of_a_node_has_its_row() -> None:
    page = (ROOT / "docs/reference/dispatching-rpc.md").read_text()
    guide = (ROOT / "docs/how-to/rpc.md").read_text()
    assert [code.name for code in CODES if f"| `{code.name}` | " not in page] == []
    assert [code.name for code in CODES if f"| `{code.name}` | " not in guide] == []


def test_the_examples_of_the_page_on_addresses_run() -> None:
    found = doctest.testfile(str(ROOT / "docs/reference/addresses.md"), module_relative=False)
    assert (found.failed, found.attempted > 5) == (0, True)


def test_the_rules_of_the_page_on_permission_are_rules() -> None:
    page = (ROOT / "docs/how-to/permissions.md").read_text()
    block = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
    assert block is not None
    rules = Rules(tomllib.loads(block[1])["security"]["allow"])
    assert rules.may("dashboard", "subscribe", Pattern("plant/7/temp"))
    assert not rules.may("dashboard", "subscribe", Pattern("plant/**"))
    assert rules.is_admin("root")
