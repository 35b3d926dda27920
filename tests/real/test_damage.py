"""A journal that lost stored events: subscribers that were owed them get a report, and the ledger counts them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import reknit
from reknit.processes.process import NodeProcess, ending
from reknit.protocol.subscribe.inputs import LossReport
from reknit.store.directory.repair import repair

pytestmark = pytest.mark.real


def test_events_that_damage_took_are_lost_to_who_was_owed_them(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path)
    with ending(node):
        node.start()
        with reknit.connect_sync(node.url) as session:
            with session.subscribe("a", name="audit"):
                pass
            for _ in range(10):
                session.publish("a", b"x" * 1000)
        assert node.stop() == 0
        [log] = (node.data / "log").glob("*.log")
        with log.open("r+b") as file:
            file.truncate(log.stat().st_size // 2)
        node.start()
        with reknit.connect_sync(node.url) as session:
            [row] = session.ledger()
            assert row["balanced"]
            assert row["published"] == 10
            assert 0 < row["lost"] < 10
            lost = row["lost"]
            with session.subscribe("a", name="audit") as events:
                assert [next(events).seq for _ in range(10 - lost)] == list(range(1, 11 - lost))
                session.publish("a", b"y")
                assert next(events).payload == b"y"
    assert "durable bytes are lost" in node.output()


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x5A]))


def fill(node: NodeProcess) -> None:
    """Twelve MB in segments of 1 MiB, all owed to the durable subscriber `audit`."""
    with reknit.connect_sync(node.url) as session:
        with session.subscribe("a", name="audit"):
            pass
        for _ in range(12):
            session.publish_many("a", [b"x" * 1000] * 1000)


def test_flipped_byte_in_an_old_segment_costs_its_batch_and_everything_after_it_flows(tmp_path: Path) -> None:
    node = NodeProcess(
        tmp_path, "--set", "journal.segment_bytes=1 MiB", "--set", "journal.tail_cache_bytes=0"
    )
    with ending(node):
        node.start()
        fill(node)
        assert node.stop() == 0
        flip(sorted((node.data / "log").glob("*.log"))[3], 500_000)
        node.start()
        losses: list[LossReport] = []
        with reknit.connect_sync(node.url) as session:
            with session.subscribe("a", name="audit", on_lost=losses.append) as events:
                seqs: list[int] = []
                while not seqs or seqs[-1] < 12_000:
                    event = next(events)
                    seqs.append(event.seq)
                    event.accept()
            [loss] = losses
            assert (loss.topic, loss.reason) == ("a", "damaged")
            assert seqs == [*range(1, loss.start), *range(loss.stop, 12_001)]
            [row] = session.ledger()
            assert (row["balanced"], row["published"], row["lost"]) == (True, 12_000, loss.stop - loss.start)
            with session.subscribe("a", history=True, on_lost=losses.append) as events:
                while next(events).seq < 12_000:
                    pass
            assert losses == [loss, loss]
        assert node.stop() == 0
    assert node.output().count("can't be read") == 1
    assert "Traceback" not in node.output()


def test_events_that_a_repair_set_aside_are_lost_to_who_was_owed_them(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path)
    with ending(node):
        node.start()
        fill(node)
        assert node.stop() == 0
        [log] = (node.data / "log").glob("*.log")
        flip(log, log.stat().st_size // 2)
        assert len(repair(node.data).damages) == 1
        for _ in range(2):  # it is counted once
            node.start()
            with reknit.connect_sync(node.url) as session:
                [row] = session.ledger()
                assert (row["balanced"], row["published"]) == (True, 12_000)
                assert (row["lost"], row["in_flight"]) == (1_000, 11_000)
            assert node.stop() == 0


def test_damaged_events_of_a_balanced_topic_are_lost_in_the_ledger(tmp_path: Path) -> None:
    config = tmp_path / "reknit.toml"
    config.write_text('[[topics]]\npattern = "a"\ndistribution = "balanced"\n')
    small = ("--set", "journal.segment_bytes=1 MiB", "--set", "journal.tail_cache_bytes=0")
    node = NodeProcess(tmp_path, "--config", str(config), *small)
    with ending(node):
        node.start()
        with reknit.connect_sync(node.url) as session:
            for _ in range(12):
                session.publish_many("a", [b"x" * 1000] * 1000)
        assert node.stop() == 0  # in order, so that the damage is in a part that the index has
        flip(sorted((node.data / "log").glob("*.log"))[3], 500_000)
        node.start()
        with reknit.connect_sync(node.url) as session:
            seqs: list[int] = []
            with session.subscribe("a") as events:
                while not seqs or seqs[-1] < 12_000:
                    event = next(events)
                    seqs.append(event.seq)
                    event.accept()
            lost = 12_000 - len(set(seqs))
            assert lost == 1_000
            deadline = time.monotonic() + 30
            while True:
                [row] = [one for one in session.ledger() if one["topic"] == "a"]
                if row["in_flight"] == 0 or time.monotonic() > deadline:
                    break
            assert (row["balanced"], row["published"], row["lost"], row["in_flight"]) == (
                True,
                12_000,
                lost,
                0,
            )
        assert node.stop() == 0
    assert "Traceback" not in node.output()
