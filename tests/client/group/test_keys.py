"""Groups with keys, over real sockets on loopback: who can take part, and how keys are replaced."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from reknit.cli.group.key_file import KeyFile
from reknit.client.group.driver import GroupDriver
from reknit.client.group.group import Group
from reknit.client.group.keys import VARIABLE, GroupKeys
from reknit.client.group.observer import look
from reknit.errors import InvalidConfig, LocalError
from reknit.protocol.multicast.settings import GroupSettings
from reknit.protocol.sealing.shared_keys import SharedKeys
from reknit.transport.udp import UdpConfig, UdpTransport
from reknit.wire.bundle import OVERHEAD_BYTES, Datagram
from reknit.wire.sealed import SEAL_BYTES
from tests.client.group.test_driver import RecordingTransport
from tests.client.group.test_group import QUICK, lan, read, run, until

pytestmark = pytest.mark.real


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    path = str(tmp_path / "keys")
    KeyFile.create(path)
    return path


@pytest.fixture
def quick_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reknit.client.group.driver.CHECK_S", 0.02)


def joined(udp: UdpConfig, member: str, key_file: str = "") -> Group:
    return Group.join("robots", udp=udp, member=member, settings=QUICK, key_file=key_file)


def refused(group: Group) -> dict[str, int]:
    return {name: count for name, count in group.counts.items() if name.startswith("refused_")}


# -- who takes part


def test_members_with_the_same_key_send_to_each_other_and_are_listed(key_file: str) -> None:
    async def main() -> None:
        udp = lan()
        a, b = joined(udp, "a", key_file), joined(udp, "b", key_file)
        async with a, b:
            await until(lambda: len(a.members) == len(b.members) == 2)
            await a.send_many([b"x" * 1_000] * 500)
            assert len(await read(b, 500)) == len(await read(a, 500)) == 500
            [view] = await look("robots", UdpTransport(udp), keys=GroupKeys.configured(key_file))
            assert [member.name for member in view.members] == ["a", "b"]
            assert await look("robots", UdpTransport(udp), wait_s=0.2) == []

    run(main)


def test_one_without_the_key_or_with_another_is_refused_and_counted(key_file: str, tmp_path: Path) -> None:
    other = str(tmp_path / "other")
    KeyFile.create(other)

    async def main() -> None:
        udp = lan()
        a, b = joined(udp, "a", key_file), joined(udp, "b", key_file)
        without, wrong = joined(udp, "without"), joined(udp, "wrong", other)
        async with a, b, without, wrong:
            await until(lambda: len(a.members) == len(b.members) == 2)
            await until(lambda: {"refused_plain", "refused_unknown_key"} <= set(refused(a)))
            await until(lambda: "refused_sealed" in refused(without))
            await a.send(b"for members alone")
            assert await read(b, 1) == [("a", b"for members alone")]
            assert [len(group.members) for group in (without, wrong)] == [1, 1]
            assert a.counts["dropped"] == sum(refused(a).values())
            await a.send(b"to be read")
            await asyncio.gather(read(a, 2), read(b, 1))

    run(main)


def test_a_refusal_is_logged_once_and_not_for_every_datagram(
    key_file: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        udp = lan()
        async with joined(udp, "a", key_file) as a, joined(udp, "without"):
            await until(lambda: refused(a).get("refused_plain", 0) >= 5)

    run(main)
    lines = [record.getMessage() for record in caplog.records if "is not sealed" in record.getMessage()]
    assert len(lines) == 1
    assert "in group 'robots' is not sealed with a key, and this member has one (plain)" in lines[0]


# -- replacing keys


@pytest.mark.usefixtures("quick_check")
def test_a_key_is_replaced_while_events_flow_and_nobody_leaves(key_file: str) -> None:
    async def main() -> None:
        udp = lan()
        a, b = joined(udp, "a", key_file), joined(udp, "b", key_file)
        async with a, b:
            await until(lambda: len(a.members) == len(b.members) == 2)
            views: list[object] = []
            a.on_view = b.on_view = views.append
            file = KeyFile(key_file)
            old = file.keys[0].name
            new = file.add().name
            steps: list[Callable[[], None]] = [lambda: None, lambda: file.use(new), lambda: file.remove(old)]
            for step in steps:
                step()
                await until(lambda: _names(a) == _names(b) == [key.name for key in file.keys])
                await a.send_many([b"x"] * 100)
                assert len(await read(b, 100)) == len(await read(a, 100)) == 100
            assert views == []
            assert refused(a) == refused(b) == {}

    run(main)


def _names(group: Group) -> list[str]:
    seal = group._driver._seal
    assert seal is not None
    return [key.name for key in seal._keys]


def test_a_file_that_became_useless_leaves_the_keys_as_they_were(
    key_file: str, caplog: pytest.LogCaptureFixture
) -> None:
    keys = GroupKeys.configured(key_file)
    assert keys is not None
    before = keys.shared
    Path(key_file).write_text("half a k")
    assert not keys.has_changed()
    assert keys.shared is before
    assert "the group's keys stay as they were" in caplog.text
    assert not keys.has_changed(), "it was reported once"
    os.unlink(key_file)
    assert not keys.has_changed()
    KeyFile.create(key_file)
    assert keys.has_changed()
    assert keys.shared is not before


def test_keys_can_not_be_given_to_a_group_that_was_joined_without() -> None:
    async def main() -> None:
        async with joined(lan(), "a") as group:
            with pytest.raises(LocalError, match="joined without a key"):
                group.use_keys(SharedKeys.parse("11" * 32))

    run(main)


# -- where keys come from


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o666])
def test_a_file_that_others_can_read_is_refused(key_file: str, mode: int) -> None:
    os.chown(key_file, 12345, -1) if os.geteuid() == 0 else None  # what root owns, its group may read
    os.chmod(key_file, mode)
    with pytest.raises(InvalidConfig, match="can be read or changed by others"):
        GroupKeys.configured(key_file)


def test_a_missing_file_is_an_error_and_not_a_group_without_a_key(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"group\.key_file.*no such file"):
        Group.join("robots", key_file=str(tmp_path / "none"))


def test_without_a_file_the_environment_has_the_keys(monkeypatch: pytest.MonkeyPatch, key_file: str) -> None:
    assert GroupKeys.configured("") is None
    monkeypatch.setenv(VARIABLE, "11" * 32)
    found = GroupKeys.configured("")
    assert found is not None
    assert found.shared.used.secret == b"\x11" * 32
    named = GroupKeys.configured(key_file)
    assert named is not None
    assert named.shared.used.secret != b"\x11" * 32, "a file that is named comes first"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, key_file: str) -> None:
    keys = GroupKeys.configured(key_file)
    assert keys is not None
    monkeypatch.setitem(sys.modules, "reknit.protocol.sealing.seal", None)
    with pytest.raises(InvalidConfig, match=r"pip install 'reknit\[crypto\]'"):
        keys.seal(7, b"m" * 16)


# -- on the network


def test_a_group_that_leaves_loopback_without_a_key_says_so(
    key_file: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        for keys in (None, GroupKeys.configured(key_file)):
            driver = GroupDriver("robots", "group/robots", SilentTransport(), lambda effect: None, keys)
            await driver.start("a", [], GroupSettings(), is_given=True)
            await driver.stop()
        async with joined(lan(), "a"):
            pass

    with caplog.at_level(logging.WARNING, "reknit.group"):
        run(main)
    lines = [record.getMessage() for record in caplog.records if "without a key" in record.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith(
        "group 'robots' leaves this host at 10.0.0.1 without a key: anyone on the network"
    )


class SilentTransport(RecordingTransport):
    """Datagrams of an Ethernet frame's size, which go nowhere."""

    piece_bytes = RecordingTransport.datagram_bytes - OVERHEAD_BYTES

    def __init__(self) -> None:
        super().__init__()
        self.lengths: list[int] = []

    def send(self, datagrams: list[Datagram], address: str) -> None:
        self.lengths += [sum(map(len, datagram)) for datagram in datagrams]


def test_sealed_datagrams_are_no_longer_than_others(key_file: str) -> None:
    async def main() -> None:
        transport = SilentTransport()
        keys = GroupKeys.configured(key_file)
        driver = GroupDriver("robots", "group/robots", transport, lambda effect: None, keys)
        await driver.start("a", [], GroupSettings(), is_given=True)
        driver.multicast.send([b"x" * 20_000], 0.0)
        driver.turn()
        assert max(transport.lengths) <= transport.datagram_bytes
        assert max(transport.lengths) > transport.datagram_bytes - OVERHEAD_BYTES - SEAL_BYTES
        await driver.stop()

    run(main)
