"""Groups in virtual time: members get every event or are told of a loss, and their nodes store what they have."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest

from reknit.batch import Batch
from reknit.client.group.group import Group
from reknit.client.group.journal import GroupJournal
from reknit.client.session import Session
from reknit.config import Config, MulticastSettings
from reknit.environment import open_datagram_socket
from reknit.protocol.multicast.effects import DeliverBatch, GroupEffect, LostEvents
from reknit.seqset import SeqSet
from reknit.testing.fabric.fabric import Fabric
from reknit.testing.fabric.plans.plan import FabricPlan, GroupNetwork
from reknit.testing.fabric.run import run

PLAN = FabricPlan(seed=3, nodes=2, publishers=0, durables=0, ephemerals=0, members=3, run_s=3.0)
ROUGH = replace(
    PLAN,
    member_leave_share=0.1,
    cut_rate=0.5,
    reset_rate=0.5,
    program_crash_rate=0.5,
    freeze_rate=0.3,
    datagram_loss_share=0.2,
    datagram_copy_share=0.1,
    datagram_full_share=0.1,
)


@pytest.mark.parametrize("network", ["multicast", "seeds", "tcp"])
def test_members_get_every_event_or_are_told_of_a_loss(network: GroupNetwork) -> None:
    assert run(3, plan=replace(ROUGH, group_network=network)).problems == []


@pytest.mark.parametrize("network", ["multicast", "seeds", "tcp"])
def test_members_with_keys_get_every_event_while_the_keys_are_replaced(network: GroupNetwork) -> None:
    assert run(3, plan=replace(ROUGH, group_network=network, group_keys=3)).problems == []


@pytest.mark.parametrize("seed", range(3))
def test_slow_members_are_handled_as_the_policy_says(seed: int) -> None:
    policies: Any = ("block", "evict", "dead_letter")
    plan = replace(ROUGH, seed=seed, freeze_s_max=20.0, group_capacity=10, group_slow=policies[seed])
    assert run(seed, plan=plan).problems == []


def test_an_event_that_a_member_skips_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    perform = Group._perform

    def skip(self: Group, effect: GroupEffect) -> None:
        if isinstance(effect, DeliverBatch) and effect.batch.first % 5 == 0 and effect.source != self.id:
            self._driver.acknowledge_soon(effect.source, effect.batch.stop - 1)
        else:
            perform(self, effect)

    monkeypatch.setattr(Group, "_perform", skip)
    problems = run(3, plan=PLAN).problems
    assert any("after" in problem for problem in problems)
    assert any("members_get_every_event" in problem for problem in problems)


def test_a_loss_without_a_cause_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    perform = Group._perform

    def lose(self: Group, effect: GroupEffect) -> None:
        if isinstance(effect, DeliverBatch) and effect.source != self.id:
            effect = LostEvents(effect.source, effect.batch.first, effect.batch.stop)
        perform(self, effect)

    monkeypatch.setattr(Group, "_perform", lose)
    assert any("group_losses_have_a_cause" in problem for problem in run(3, plan=PLAN).problems)


def test_events_that_do_not_come_to_the_node_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    put = GroupJournal.put

    def forget(self: GroupJournal, batch: Batch) -> None:
        if batch.first < 4:
            put(self, batch)

    monkeypatch.setattr(GroupJournal, "put", forget)
    assert any("group_events_are_stored" in problem for problem in run(3, plan=PLAN).problems)


def test_events_that_the_node_refuses_are_logged_and_lost_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(fabric: Fabric) -> list[SeqSet]:
        node = await fabric.start_node("a")
        host = fabric.host("robot")
        host.step_clock(1e6)  # the node takes no events from the future
        config = Config(group=MulticastSettings(interface=host.address))

        async def send() -> None:
            async with Session(node.url, config=config) as session, session.group("robots") as group:
                for number in range(20):
                    await group.send(b"%d" % number)
                    await asyncio.sleep(0.5)

        await host.run(send())
        return list(node.node.journal.ledger.skipped.values())

    with Fabric(seed=7) as fabric, caplog.at_level(logging.ERROR, logger="reknit.group"):
        lost = fabric.run(main(fabric))
    logged = [record.getMessage().split()[0] for record in caplog.records if record.name == "reknit.group"]
    assert logged == ["1", "2", "4", "8", "16"]
    assert lost == [SeqSet.from_ranges([(1, 21)])]


def test_datagrams_are_lost_copied_and_held_back() -> None:
    async def main(fabric: Fabric) -> list[bytes]:
        one, other = fabric.host("one"), fabric.host("other")
        got: list[bytes] = []
        assert one.life is not None
        assert other.life is not None
        receiver = other.life.call(open_datagram_socket)
        receiver.bind((other.address, 7000))
        other.life.call(
            fabric.loop.add_reader, receiver.fileno(), lambda: got.append(receiver.recvfrom(100)[0])
        )
        sender = one.life.call(open_datagram_socket)
        sender.bind((one.address, 0))

        async def send(text: bytes) -> None:
            sender.sendmsg([text], [], 0, (other.address, 7000))
            await asyncio.sleep(0.1)

        datagrams = fabric.network.datagrams
        await send(b"plain")
        datagrams.copy_share = 1.0
        await send(b"twice")
        datagrams.copy_share, datagrams.loss_share = 0.0, 1.0
        await send(b"lost")
        datagrams.calm()
        fabric.network.cut(one.address, other.address)
        await send(b"cut")
        fabric.network.heal_all()
        datagrams.full_share = 1.0
        with pytest.raises(BlockingIOError):
            await send(b"no room")
        datagrams.calm()
        datagrams.buffer_bytes = 8
        other.life.freeze(0.2)
        for text in (b"first", b"too much"):
            await send(text)
        await asyncio.sleep(0.2)
        return got

    with Fabric(seed=7) as fabric:
        assert fabric.run(main(fabric)) == [b"plain", b"twice", b"twice", b"first"]
