"""Real processes in network namespaces, over veth and a bridge that drops packets."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from reknit.processes.process import start_tied
from tests.client.group.member_process import digest_of
from tests.client.group.namespaces import Namespaces, why_not

WHY_NOT = why_not()
pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]

MEMBERS = 3
EVENTS = 3_000


def run_members(lan: Namespaces) -> list[dict[str, Any]]:
    processes: list[Any] = []
    for number, address in enumerate(lan.addresses):
        program = [sys.executable, "-m", "tests.client.group.member_process", address, f"m{number}"]
        command = lan.command(number, *program, str(MEMBERS), str(EVENTS))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        processes.append(start_tied(command, text=True, **pipes))
    try:
        assert [process.stdout.readline() for process in processes] == ["complete\n"] * MEMBERS
        for process in processes:
            process.stdin.write("send\n")
            process.stdin.flush()
        lines = [process.stdout.readline() for process in processes]
        return [json.loads(line) for line in lines]
    finally:
        for process in processes:
            process.stdin.close()
        for process in processes:
            process.wait(timeout=150)
            process.stdout.close()


@pytest.mark.parametrize("loss_permille", [0, 1, 10, 50])
def test_three_processes_get_the_same_whatever_the_wire_drops(loss_permille: int) -> None:
    with Namespaces(MEMBERS, loss_permille) as lan:
        reports = run_members(lan)
        dropped = lan.dropped()
    wanted = {f"m{number}": digest_of(f"m{number}", EVENTS) for number in range(MEMBERS)}
    assert [report["digests"] for report in reports] == [wanted] * MEMBERS
    assert all(report["lost"] == 0 for report in reports)
    if loss_permille >= 10:
        assert dropped > 0
        assert sum(report["asked"] for report in reports) > 0
