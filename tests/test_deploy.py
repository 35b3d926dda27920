"""The files in `deploy/` are valid as far as this machine can tell, and agree with the commands that they run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from typer.main import get_command

from reknit.cli.main import app
from reknit.config import KNOWN

FOLDER = Path(__file__).parents[1] / "deploy"
COMMANDS = get_command(app).commands  # type: ignore[attr-defined]


def options_of(*path: str) -> set[str]:
    command: Any = COMMANDS[path[0]]
    for name in path[1:]:
        command = command.commands[name]
    return {option for parameter in command.params for option in parameter.opts}


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def test_every_setting_in_an_environment_exists() -> None:
    for path in FOLDER.iterdir():
        for name in re.findall(r"REKNIT_([A-Z0-9]+__[A-Z0-9_]+)", path.read_text()):
            assert name.lower().replace("__", ".", 1) in KNOWN, f"{path.name}: REKNIT_{name}"


def test_every_option_of_a_command_exists() -> None:
    pipeline = documents("compose.yaml")[0]["services"]["pipeline"]["command"]
    assert {one for one in pipeline if one.startswith("--")} <= options_of("pipeline", "run")
    [sets] = [one for one in documents("kubernetes.yaml") if one["kind"] == "StatefulSet"]
    [script] = sets["spec"]["template"]["spec"]["containers"][0]["args"]
    assert set(re.findall(r"--[a-z-]+", script)) <= options_of("up")
    assert subprocess.run(["sh", "-n", "-c", script]).returncode == 0
    dockerfile = (FOLDER / "Dockerfile").read_text()
    assert set(re.findall(r'"(--log[a-z-]*)"', dockerfile)) <= options_of("up")
    assert "USER 10001" in dockerfile


def test_the_manifests_fit_together() -> None:
    kinds = {one["kind"]: one for one in documents("kubernetes.yaml")}
    sets = kinds["StatefulSet"]["spec"]
    template = sets["template"]
    assert sets["selector"]["matchLabels"] == template["metadata"]["labels"]
    names = {one["metadata"]["name"] for one in documents("kubernetes.yaml") if one["kind"] == "Service"}
    assert sets["serviceName"] in names
    container = template["spec"]["containers"][0]
    ports = {port["name"] for port in container["ports"]}
    probes = [container[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert {(probe["path"], probe["port"] in ports) for probe in probes} == {
        ("/readyz", True),
        ("/healthz", True),
    }
    mounted = {one["name"] for one in container["volumeMounts"]}
    claims = {one["metadata"]["name"] for one in sets["volumeClaimTemplates"]}
    assert mounted == claims | {one["name"] for one in template["spec"]["volumes"]}


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    text = (FOLDER / "reknit.service").read_text()
    unit = tmp_path / "reknit.service"
    unit.write_text(text.replace("/opt/reknit/bin/reknit", shutil.which("true") or "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)],
        capture_output=True,
        text=True,
        env={**os.environ, "LANG": "C"},
    )
    assert (done.returncode, done.stderr) == (0, "")
