"""The dashboard and the alert rules of docs/monitoring ask for metrics that a node has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from reknit.node.admin.ledger_reader import LedgerSums
from reknit.node.admin.metrics import metrics_of
from reknit.node.node import Node
from tests.client.node_thread import serving
from tests.gateway.http.http_client import config

FOLDER = Path(__file__).parents[2] / "docs" / "monitoring"


def names(node: Node) -> set[str]:
    """Every metric of a node, as Prometheus names it."""
    ledger = LedgerSums([])
    return {
        f"{one.name}_total" if one.type == "counter" else one.name
        for one in metrics_of(node.figures.status(), ledger)
    }


@pytest.fixture(scope="module")
def known() -> set[str]:
    with serving(config()) as node:
        return names(node)


def test_every_panel_asks_for_metrics_that_exist(known: set[str]) -> None:
    board = json.loads((FOLDER / "grafana.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(asked) > 15
    assert set(re.findall(r"reknit_\w+", " ".join(asked))) <= known


def test_every_alert_asks_for_metrics_that_exist(known: set[str]) -> None:
    text = (FOLDER / "alerts.yml").read_text()
    rules = re.findall(r"- alert: (\w+)\n\s+expr: (\".*\")\n\s+for: \d+m\n\s+labels: {severity: (\w+)}", text)
    assert len(rules) == text.count("- alert:") > 10
    for name, expression, severity in rules:
        assert severity in ("critical", "warning")
        metrics = set(re.findall(r"reknit_\w+", json.loads(expression)))
        assert metrics <= known, name
        assert metrics or "up{" in expression
