"""`reknit journal` on an intact journal and on a damaged one."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from reknit.batch import Batch
from reknit.cli.main import app
from reknit.store.disk import DiskJournal

SOURCE = b"s" * 16


def _fill(directory: Path, batches: int) -> None:
    journal = DiskJournal(directory)
    for index in range(batches):
        batch = Batch.build(SOURCE, "plant/temp", 1 + 10 * index, [b"21.5"] * 10, time_us=index)
        journal.stage(bytes(batch.data), [batch.head])
    journal.commit()
    journal.close()


def test_show_counts_what_a_journal_holds(tmp_path: Path) -> None:
    _fill(tmp_path, 3)
    result = CliRunner().invoke(app, ["journal", "show", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["events"] == 30


def test_repair_leaves_a_whole_journal_alone(tmp_path: Path) -> None:
    _fill(tmp_path, 3)
    result = CliRunner().invoke(app, ["journal", "repair", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert result.output.strip() == "nothing is damaged"


def test_repair_names_the_events_that_were_damaged(tmp_path: Path) -> None:
    _fill(tmp_path, 3)
    [log] = (tmp_path / "log").glob("*.log")
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log.write_bytes(data)
    result = CliRunner().invoke(app, ["journal", "repair", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert f"lost: plant/temp {SOURCE.hex()} [11, 21)" in result.output
    held = CliRunner().invoke(app, ["journal", "show", str(tmp_path), "--json"])
    assert json.loads(held.output)["events"] == 20


def test_verify_counts_what_it_checked(tmp_path: Path) -> None:
    _fill(tmp_path, 3)
    result = CliRunner().invoke(app, ["journal", "verify", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("checked: 30 events and 0 records")


def test_verify_names_the_damage_and_exits_with_1(tmp_path: Path) -> None:
    _fill(tmp_path, 3)
    [log] = (tmp_path / "log").glob("*.log")
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log.write_bytes(data)
    result = CliRunner().invoke(app, ["journal", "verify", str(tmp_path), "--json"])
    assert result.exit_code == 1, result.output
    body = json.loads(result.output)
    assert (body["is_sound"], body["events"], len(body["damages"])) == (False, 20, 1)
    assert CliRunner().invoke(app, ["journal", "verify", str(tmp_path)]).output.startswith("damaged: ")
