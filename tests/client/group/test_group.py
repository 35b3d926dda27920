"""Groups as a program uses them, over real sockets on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from reknit.client.group.group import Group
from reknit.errors import Closed, Full
from reknit.protocol.multicast.settings import GroupSettings
from reknit.transport.udp import UdpConfig
from reknit.transport.udp_over_tcp import TcpConfig
from reknit.view import Member, View
from reknit.wire.bundle import Bundler, group_hash
from reknit.wire.groups import GroupHello
from tests.multicast_addresses import multicast_address

pytestmark = pytest.mark.real

QUICK = GroupSettings(discover_s=0.1, beat_s=0.1)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(150):
            await main()

    asyncio.run(limited())


def lan() -> UdpConfig:
    """A multicast address that no other test uses."""
    return UdpConfig(group=multicast_address())


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110  (there is no one event to wait for)
        await asyncio.sleep(0.01)


async def fill(group: Group) -> None:
    for number in range(100):
        await group.send(b"%d" % number, timeout_s=0.2)


async def read(group: Group, count: int) -> list[tuple[str, bytes]]:
    out: list[tuple[str, bytes]] = []
    async for event in group:
        out.append((group.name_of(event.source), event.payload))
        if len(out) == count:
            break
    return out


def trio(udp: UdpConfig, settings: GroupSettings = QUICK) -> tuple[Group, Group, Group]:
    a, b, c = (Group.join("robots", udp=udp, member=name, settings=settings) for name in "abc")
    return a, b, c


def test_everyone_reads_what_everyone_sent_in_order() -> None:
    async def main() -> None:
        a, b, c = trio(lan())
        async with a, b, c:
            await until(lambda: all(len(group.members) == 3 for group in (a, b, c)))
            for number in range(200):
                await a.send(b"%d" % number)
                await b.send(b"%d" % number)
            for group in (a, b, c):
                got = await read(group, 400)
                for name in "ab":
                    assert [p for n, p in got if n == name] == [b"%d" % n for n in range(200)]

    run(main)


def test_members_and_views_are_seen() -> None:
    async def main() -> None:
        udp, views = lan(), list[View]()
        a, b, _ = trio(udp)
        a.on_view = views.append
        async with a:
            async with b:
                await until(lambda: len(a.members) == 2)
                assert [member.name for member in a.members] == ["a", "b"]
            await until(lambda: len(a.members) == 1)
        assert [len(view.members) for view in views] == [1, 2, 1]

    run(main)


def test_a_large_event_arrives_if_the_limits_allow() -> None:
    settings = GroupSettings(discover_s=0.1, event_bytes_max=8 << 20, window_bytes=16 << 20)

    async def main() -> None:
        a, b, _ = trio(lan(), settings)
        async with a, b:
            await until(lambda: len(a.members) == len(b.members) == 2)
            large = os.urandom(5_000_000)
            await a.send(large)
            assert await read(b, 1) == [("a", large)]

    run(main)


def test_a_reader_that_does_not_read_holds_up_the_sender_and_a_timed_send_says_so() -> None:
    async def main() -> None:
        a, b, _ = trio(lan(), GroupSettings(discover_s=0.1, capacity_events=20))
        async with a, b:
            await until(lambda: len(a.members) == len(b.members) == 2)
            with pytest.raises(Full, match="no room in time"):
                await fill(a)
            assert not a.send_nowait(b"x")
            reading = asyncio.gather(read(b, 21), read(a, 21))
            await a.send(b"last")
            got, own = await reading
            assert got == own
            assert [payload for _, payload in got][-1] == b"last"

    run(main)


def test_closing_releases_who_waits_to_send() -> None:
    async def main() -> None:
        a, b, _ = trio(lan(), GroupSettings(discover_s=0.1, capacity_events=5))
        async with b, a:
            await until(lambda: len(a.members) == len(b.members) == 2)
            waiting = asyncio.create_task(a.send_many([b"x"] * 50))
            await asyncio.sleep(0)  # let it fill the window and wait
            await a.close(settle_s=0.05)
            with pytest.raises(Closed):
                await waiting
            with pytest.raises(Closed):
                await a.send(b"x")

    run(main)


def test_a_reader_ends_when_the_group_is_left() -> None:
    async def main() -> None:
        a, _, _ = trio(lan())
        async with a:
            reading = asyncio.create_task(read(a, 10))
            await asyncio.sleep(0)  # let it wait for an event
        assert await reading == []

    run(main)


def test_large_and_empty_events_pass() -> None:
    async def main() -> None:
        a, b, _ = trio(lan())
        async with a, b:
            await until(lambda: len(a.members) == len(b.members) == 2)
            payloads = [b"", os.urandom(200_000), b"x"]
            await a.send_many(payloads)
            assert [payload for _, payload in await read(b, 3)] == payloads
            assert [payload for _, payload in await read(a, 3)] == payloads

    run(main)


def test_who_stops_reading_and_starts_again_misses_nothing() -> None:
    async def main() -> None:
        a, _, _ = trio(lan())
        async with a:
            await a.send_many([b"%d" % n for n in range(10)])
            got = [payload for _ in range(5) for _, payload in await read(a, 2)]
            assert got == [b"%d" % n for n in range(10)]

    run(main)


def test_own_events_can_be_left_out() -> None:
    async def main() -> None:
        udp = lan()
        a = Group.join("robots", udp=udp, member="a", settings=QUICK, discard_own=True)
        b = Group.join("robots", udp=udp, member="b", settings=QUICK)
        async with a, b:
            await until(lambda: len(a.members) == len(b.members) == 2)
            await a.send(b"from a")
            await b.send(b"from b")
            assert await read(a, 1) == [("b", b"from b")]

    run(main)


def test_groups_with_other_names_on_the_same_address_do_not_hear_each_other() -> None:
    async def main() -> None:
        udp = lan()
        a, b = (Group.join("robots", udp=udp, member=name, settings=QUICK) for name in "ab")
        c, d = (Group.join("drones", udp=udp, member=name, settings=QUICK) for name in "cd")
        async with a, c, b, d:
            await until(lambda: all(len(group.members) >= 2 for group in (a, b, c, d)))
            await a.send(b"robot")
            await c.send(b"drone")
            assert await read(b, 1) == [("a", b"robot")]
            assert await read(d, 1) == [("c", b"drone")]
            names = [{member.name for member in group.members} for group in (a, b, c, d)]
            assert names == [{"a", "b"}, {"a", "b"}, {"c", "d"}, {"c", "d"}]

    run(main)


def test_what_is_sent_just_before_leaving_arrives() -> None:
    async def main() -> None:
        a, b, _ = trio(lan())
        async with b:
            async with a:
                await until(lambda: len(a.members) == len(b.members) == 2)
                reading = asyncio.create_task(read(b, 500))
                await a.send_many([b"%d" % n for n in range(500)])
            assert len(await reading) == 500

    run(main)


def test_a_group_over_tcp_works_the_same() -> None:
    async def main() -> None:
        a = Group.join("robots", tcp=TcpConfig(), member="a", settings=QUICK)
        async with a:
            seeds = [a.members[0].address]
            b, c = (
                Group.join("robots", tcp=TcpConfig(), member=n, settings=QUICK, seeds=seeds) for n in "bc"
            )
            async with b, c:
                await until(lambda: all(len(group.members) == 3 for group in (a, b, c)))
                await a.send_many([b"%d" % n for n in range(300)])
                wanted = [("a", b"%d" % n) for n in range(300)]
                readings: list[Awaitable[list[tuple[str, bytes]]]] = [read(g, 300) for g in (a, b, c)]
                for reading in readings:
                    assert await reading == wanted

    run(main)


def test_a_group_over_plain_udp_finds_its_members_by_seeds() -> None:
    async def main() -> None:
        a = Group.join("robots", udp=UdpConfig(group=""), member="a", settings=QUICK)
        async with a:
            seeds = [a.members[0].address]
            async with Group.join(
                "robots", udp=UdpConfig(group=""), member="b", settings=QUICK, seeds=seeds
            ) as b:
                await until(lambda: len(a.members) == len(b.members) == 2)
                await b.send(b"hello")
                assert await read(a, 1) == [("b", b"hello")]

    run(main)


def test_survivors_of_a_sender_that_stops_dead_have_the_same_of_it_in_their_ledgers() -> None:
    settings = GroupSettings(discover_s=0.1, beat_s=0.1, suspect_s=1.0, confirm_s=0.3)

    async def main() -> None:
        a, b, c = trio(lan(), settings)
        async with b, c:
            await a.__aenter__()
            await until(lambda: all(len(group.members) == 3 for group in (a, b, c)))
            await a.send_many([b"%d" % number for number in range(5000)])
            readings = [asyncio.create_task(read(group, 1000)) for group in (b, c)]
            await asyncio.gather(*readings)
            await a._driver.stop()  # without a word
            reading = [asyncio.create_task(read(group, 10_000)) for group in (b, c)]
            await until(lambda: all(len(group.members) == 2 for group in (b, c)))
            await until(lambda: all(a.id not in g._driver.multicast.receivers for g in (b, c)))
            one, other = (next(r for r in g.ledger.rows() if r.source == a.id) for g in (b, c))
            assert one == other
            assert one.delivered + one.lost == one.last >= 1000
            for task in reading:
                task.cancel()

    run(main)


def test_a_reader_that_runs_while_its_group_is_closed_sees_no_hole() -> None:
    async def main() -> None:
        udp = lan()
        a, b = (Group.join("robots", udp=udp, member=name, settings=QUICK) for name in "ab")
        async with a:
            draining = asyncio.create_task(read(a, 10_000_000))
            await b.__aenter__()
            await until(lambda: len(a.members) == 2)
            got: list[int] = []

            async def slow_reader() -> None:
                async for event in b:
                    got.append(event.seq)
                    if len(got) % 50 == 0:
                        await asyncio.sleep(0.001)  # an application that does a little work

            async def flood() -> None:
                with contextlib.suppress(Closed):
                    while True:
                        await a.send_many([b"x" * 100] * 200)

            reading, flooding = asyncio.create_task(slow_reader()), asyncio.create_task(flood())
            await until(lambda: len(got) >= 1000)
            await b.close()
            await reading
            assert got == list(range(1, len(got) + 1))
            [row] = [row for row in b.ledger.rows() if row.source == a.id]
            assert row.unread > 0
            assert b.ledger.unread(a.id) == [(len(got) + 1, row.last + 1)]
            assert (row.delivered, row.lost) == (len(got), 0)
            draining.cancel()
        await flooding

    run(main)


def test_a_stranger_whose_address_is_no_address_does_not_stop_a_busy_group() -> None:
    stranger = os.urandom(16)
    bundler = Bundler(group_hash("robots"), stranger, 1400)
    bundler.add(GroupHello(Member(stranger, "evil", "10.0.0.99:7777")))
    [datagram] = bundler.take(0)

    async def main() -> None:
        udp = lan()
        host, _, port = udp.group.rpartition(":")
        a, b = (Group.join("robots", udp=udp, member=name, settings=QUICK) for name in "ab")
        async with a, b:
            await until(lambda: len(a.members) == len(b.members) == 2)
            sending = asyncio.create_task(a.send_many([b"x" * 50] * 20_000))
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(udp.interface))
                for bad in (b"nonsense777777", b"10.0.0.99:7x77", b"10.0.0.999:777", b"10.0.0.99:-777"):
                    sock.sendto(datagram.replace(b"10.0.0.99:7777", bad), (host, int(port)))
            readings = [asyncio.create_task(read(group, 20_000)) for group in (a, b)]
            assert [len(await reading) for reading in readings] == [20_000, 20_000]
            await sending
            await a.settled()
            assert b.counts["dropped"] >= 4
            assert len(a.members) == 2

    run(main)
