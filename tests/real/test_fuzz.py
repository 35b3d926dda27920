"""A short campaign of all fuzzers, with a canary beside: about a minute, as `make fuzz MINUTES=1`."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from reknit.testing.fuzz.__main__ import main
from reknit.testing.fuzz.findings import TargetReport
from reknit.testing.fuzz.targets.all import NAMES

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.mark.timeout(900)
def test_a_campaign_finds_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--inputs", "4000", "--minutes", "1", "--seed", "1", "--found", str(tmp_path), "--json"])
    reports = msgspec.json.decode(capsys.readouterr().out, type=list[TargetReport])
    assert [report.target for report in reports] == list(NAMES)
    for report in reports:
        assert not report.findings, "\n".join(f"{one.what}\n{one.text}" for one in report.findings)
        assert report.inputs or report.left_out
        if report.canary is not None:
            assert report.canary.received == report.canary.published > 0
    assert code == 0
