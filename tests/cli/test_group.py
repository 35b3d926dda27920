"""`reknit group`, as real processes on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from reknit.processes.process import start_tied
from tests.client.node_thread import serving
from tests.multicast_addresses import multicast_address

pytestmark = pytest.mark.real

ADDRESS = multicast_address()
REKNIT = [sys.executable, "-c", "from reknit.cli.main import main; main()", "group"]


def reknit(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [*REKNIT, *arguments, "--address", ADDRESS]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=150)


def at_node(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*REKNIT[:-1], *arguments, "--node", url]
    return subprocess.run(command, capture_output=True, text=True, timeout=150)


def test_a_member_prints_what_others_send_and_is_listed() -> None:
    command = [*REKNIT, "join", "robots", "--as", "reader", "--count", "3", "--address", ADDRESS]
    with start_tied(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        try:
            while "joined" not in (line := reader.stderr.readline()):
                assert line, "it ended before it joined"
            [view] = json.loads(reknit("members", "robots", "--json").stdout)
            assert [member["name"] for member in view["members"]] == ["reader"]
            assert reknit("send", "robots", "hello", "--as", "a").stdout == "1 event sent to 1 other member\n"
            assert (
                reknit("send", "robots", "--as", "b", text="one\ntwo\n").stdout
                == "2 events sent to 1 other member\n"
            )
            assert reader.stdout.read() == "a\thello\nb\tone\nb\ttwo\n"
            assert reader.wait(timeout=150) == 0
        finally:
            reader.kill()


def test_sending_to_an_empty_group_fails_with_a_hint() -> None:
    done = reknit("send", "nobody", "hello", "--wait", "0.1")
    assert done.returncode == 1
    assert "0 other members in group 'nobody' after 0.1 s: join one, or pass --members 1" in done.stderr


def test_listing_the_members_of_an_unknown_group_fails() -> None:
    done = reknit("members", "nobody")
    assert done.returncode == 1
    assert "no member of group 'nobody' answers" in done.stderr


def test_events_sent_with_a_node_reach_its_subscribers_and_its_ledger() -> None:
    with serving() as node:
        url = node.urls[0]
        sent = reknit("send", "robots", "hello", "--members", "1", "--as", "a", "--node", url)
        assert sent.stdout == "1 event sent to 0 other members\n"
        words = ("sub", "group/**", "--history", "--count", "1", "--name", "reader")
        assert "hello" in at_node(url, *words).stdout
        ledger = at_node(url, "ledger")
        assert "group/robots" in ledger.stdout
        assert ledger.returncode == 0


# -- keys


def key(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*REKNIT, "key", *arguments], capture_output=True, text=True, timeout=150)


def test_a_key_is_created_replaced_and_never_shown(tmp_path: Path) -> None:
    file = str(tmp_path / "keys")
    first = key("create", file).stdout.split()[1]
    assert os.stat(file).st_mode & 0o777 == 0o600
    second = key("add", file).stdout.split()[1]
    assert key("list", file).stdout == f"{first}\tused\n{second}\taccepted\n"
    assert key("use", file, second).returncode == 0
    assert key("list", file).stdout == f"{second}\tused\n{first}\taccepted\n"
    assert key("remove", file, first).returncode == 0
    done = key("list", file)
    assert done.stdout == f"{second}\tused\n"
    secret = Path(file).read_text().splitlines()[1].split()[0]
    assert secret not in done.stdout
    assert os.stat(file).st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["keys"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["create"], "exists; `reknit group key add"),
        (["use", "00000000"], "has no key 00000000; it has"),
        (["remove", "00000000"], "has no key 00000000; it has"),
    ],
)
def test_a_wrong_order_for_a_key_changes_nothing(tmp_path: Path, arguments: list[str], why: str) -> None:
    file = tmp_path / "keys"
    name = key("create", str(file)).stdout.split()[1]
    before = file.read_text()
    command, *rest = arguments
    done = key(command, str(file), *rest)
    assert done.returncode == 1
    assert why in done.stderr
    done = key("remove", str(file), name)
    assert "is the only key" in done.stderr
    assert file.read_text() == before


def test_members_with_a_key_file_reach_each_other(tmp_path: Path) -> None:
    file = str(tmp_path / "keys")
    key("create", file)
    command = [*REKNIT, "join", "sealed", "--count", "1", "--address", ADDRESS, "--key-file", file]
    with start_tied(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        try:
            while "joined" not in (line := reader.stderr.readline()):
                assert line, "it ended before it joined"
            assert reknit("members", "sealed").returncode == 1
            assert len(reknit("members", "sealed", "--key-file", file).stdout.splitlines()) == 1
            assert reknit("send", "sealed", "hello", "--as", "a", "--key-file", file).returncode == 0
            assert reader.stdout.read() == "a\thello\n"
        finally:
            reader.kill()
