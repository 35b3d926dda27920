"""The driver of a group member: a failure costs no other effect, and no other message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from reknit.client.group.datagrams import GroupDatagrams
from reknit.client.group.driver import GroupDriver
from reknit.errors import InvalidConfig
from reknit.protocol.multicast.effects import GroupEffect, ViewInstalled
from reknit.protocol.multicast.member import GivenMembership
from reknit.protocol.multicast.settings import GroupSettings
from reknit.transport.udp import OnDatagram
from reknit.view import Member
from reknit.wire.bundle import Bundler, Datagram, group_hash, unbundle
from reknit.wire.groups import GroupAck, GroupAskStart, GroupAskView, GroupBeat, GroupMessage, GroupStart

OTHER = Member(b"o" * 16, "other", "10.0.0.2:2")


class RecordingTransport:
    """A transport that sends nothing, and remembers everything."""

    is_reply_possible = True
    buffer_bytes, datagram_bytes, piece_bytes = 1 << 20, 1472, 1400
    address = "10.0.0.1:1"

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.sent: list[tuple[str, object]] = []

    async def listen(self) -> None: ...
    async def close(self) -> None: ...
    def set_peers(self, addresses: Sequence[str]) -> None: ...

    async def open(self, on_datagram: OnDatagram, on_turn: Callable[[], None]) -> None:
        self.receive = on_datagram

    def send_all(self, datagrams: list[Datagram]) -> None:
        self.send(datagrams, "all")

    def send(self, datagrams: list[Datagram], address: str) -> None:
        for datagram in datagrams:
            self.sent += [(address, item) for item in unbundle(b"".join(datagram), group_hash("robots"))[1]]


async def started(transport: RecordingTransport, on_effect: Callable[[GroupEffect], None]) -> GroupDriver:
    driver = GroupDriver("robots", "group/robots", transport, on_effect)
    await driver.start("a", [], GroupSettings(), is_given=True)
    return driver


def test_an_effect_that_fails_costs_no_other_effect_of_the_turn(caplog: pytest.LogCaptureFixture) -> None:
    performed: list[GroupEffect] = []

    def fail(effect: GroupEffect) -> None:
        performed.append(effect)
        raise RuntimeError("an application's mistake")

    async def main() -> None:
        driver = await started(RecordingTransport(), fail)
        assert isinstance(driver.machine.membership, GivenMembership)
        performed.clear()
        driver.machine.membership.give([driver.machine.me])
        driver.give([driver.machine.me, OTHER])
        assert [len(effect.view.members) for effect in performed if isinstance(effect, ViewInstalled)] == [
            1,
            2,
        ]
        await driver.stop()

    asyncio.run(main())
    assert "an application's mistake" in caplog.text


def test_a_message_that_fails_costs_no_other_message_of_its_datagram(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        transport = RecordingTransport()
        driver = await started(transport, lambda effect: None)
        driver.give([driver.machine.me, OTHER])
        transport.sent.clear()
        receive = driver.machine.receive

        def receive_no_acks(message: object, *rest: object) -> None:
            if isinstance(message, GroupAck):
                raise RuntimeError("a mistake of ours")
            receive(message, *rest)  # type: ignore[arg-type]

        monkeypatch.setattr(driver.machine, "receive", receive_no_acks)
        bundler = Bundler(group_hash("robots"), OTHER.id, 1472)
        bundler.add(GroupAck(0))
        bundler.add(GroupAskStart())
        for datagram in bundler.take(0):
            transport.receive(datagram, ("10.0.0.2", 2))
        driver.turn()
        assert GroupStart in [type(item) for _, item in transport.sent]
        await driver.stop()

    asyncio.run(main())
    assert "a mistake of ours" in caplog.text


def test_a_seed_that_is_no_address_is_refused_at_the_start() -> None:
    async def main() -> None:
        driver = GroupDriver("robots", "group/robots", RecordingTransport(), lambda effect: None)
        with pytest.raises(InvalidConfig, match="nonsense"):
            await driver.start("a", ["nonsense"], GroupSettings())

    asyncio.run(main())


@pytest.mark.parametrize(
    ("beat", "answers"),
    [
        (GroupBeat(3, OTHER.id, True, OTHER.address), [(OTHER.address, GroupAskView())]),
        (GroupBeat(3, OTHER.id, True), []),
    ],
)
def test_another_groups_coordinator_is_answered_at_the_address_that_it_names(
    beat: GroupBeat, answers: list[tuple[str, GroupMessage]]
) -> None:
    """Over TCP its datagrams come from another port. Two groups that did not know each other never merged."""
    transport = RecordingTransport()
    transport.is_reply_possible = False
    datagrams = GroupDatagrams(group_hash("robots"), b"m" * 16, transport)
    datagrams.set_members([])
    datagrams.learn(OTHER.id, beat, ("10.0.0.2", 40_001))
    datagrams.to_peer(OTHER.id).add(GroupAskView())
    datagrams.flush(0)
    assert transport.sent == answers
