"""`reknit up` on an event loop: how it ends."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any, Literal

import pytest
import typer

from reknit.cli.up import run as up
from reknit.client.session import connect
from reknit.config import Config, JournalSettings, NodeSettings
from reknit.environment import DiskFiles
from reknit.node.admin.metrics import NodeCollector
from reknit.server import Node, build_node

pytestmark = pytest.mark.real


def config(folder: Path, failed_sync: Literal["stop_intake", "exit"] = "stop_intake") -> Config:
    return Config(
        node=NodeSettings(data_dir=folder, listen=("tcp://127.0.0.1:0",)),
        journal=JournalSettings(failed_sync=failed_sync),
    )


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> list[Node]:
    """The nodes that the command makes."""
    made: list[Node] = []

    def build(config: Config) -> Node:
        made.append(build_node(config))
        return made[-1]

    monkeypatch.setattr(up, "build_node", build)
    return made


class Hanging:
    """Something beside a node whose start takes for ever."""

    def __init__(self) -> None:
        self.is_started = asyncio.Event()

    async def start(self) -> None:
        self.is_started.set()
        await asyncio.Event().wait()

    async def stop(self) -> None:
        raise AssertionError("it never started")


async def until(is_so: Any) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110  (there is no one event to wait for)
            await asyncio.sleep(0.01)


def test_a_node_that_is_stopped_while_it_starts_ends_cleanly_and_says_so(
    tmp_path: Path, nodes: list[Node], capsys: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        serving = asyncio.create_task(up._serve(config(tmp_path), None))
        await asyncio.sleep(0)
        hanging = Hanging()
        nodes[0]._make_importers = lambda node: [hanging]
        await hanging.is_started.wait()
        serving.cancel()
        await serving
        async with build_node(config(tmp_path)):
            pass  # the journal was closed: another node can open it

    # the importers are made after the first wait of the start, so that they can be replaced before
    asyncio.run(main())
    assert capsys.readouterr().err == "stopped while starting: nothing was served\n"


def test_a_signal_before_the_event_loop_runs_ends_cleanly_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        up._stop_early()
    assert ended.value.code == 0
    assert "stopped while starting" in capsys.readouterr().err


class Disk:
    """Lets the syncs of a process fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_bad = False
        sync = DiskFiles.fdatasync

        def fdatasync(files: DiskFiles, fd: int) -> None:
            if self.is_bad:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            sync(files, fd)

        monkeypatch.setattr(DiskFiles, "fdatasync", fdatasync)


def test_after_a_failed_sync_the_status_says_that_the_node_has_to_be_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)

    async def main() -> None:
        async with build_node(config(tmp_path)) as node, connect(node.urls[0]) as session:
            await session.publish("plant/a", b"stored")
            assert (await session.status())["journal"]["problem"] == ""
            disk.is_bad = True
            waiting = asyncio.ensure_future(session.publish("plant/a", b"not stored"))
            await until(lambda: node.journal.problem)
            disk.is_bad = False
            journal = (await session.status())["journal"]
            assert "I/O error" in journal["problem"] or "nput/output error" in journal["problem"]
            assert journal["is_broken"]
            collector = NodeCollector(node.figures, asyncio.get_running_loop())
            found = await asyncio.to_thread(lambda: list(collector.collect()))
            [metric] = [one for one in found if one.name == "reknit_journal_broken"]
            assert metric.samples[0].value == 1.0
            assert not node.is_broken.is_set(), "it goes on delivering what it has"
            waiting.cancel()
            await session.connection.close()  # it would wait for the node to store the event

    asyncio.run(main())


def test_a_node_exits_after_a_failed_sync_where_that_is_configured(
    tmp_path: Path, nodes: list[Node], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = Disk(monkeypatch)

    async def main() -> None:
        serving = asyncio.create_task(up._serve(config(tmp_path, "exit"), None))
        await until(lambda: nodes and nodes[0].urls and not nodes[0].urls[0].endswith(":0"))
        async with connect(nodes[0].urls[0]) as session:
            await session.publish("plant/a", b"stored")
            disk.is_bad = True
            waiting = asyncio.ensure_future(session.publish("plant/a", b"not stored"))
            with pytest.raises(typer.Exit) as ended:
                await serving
            assert ended.value.exit_code == 1
            waiting.cancel()
            await session.connection.close()
        disk.is_bad = False
        async with build_node(config(tmp_path)) as again:
            assert again.journal.status().events == 1
            assert again.journal.problem == ""

    asyncio.run(main())
    assert "the node exits to be restarted, as journal.failed_sync says" in capsys.readouterr().err
