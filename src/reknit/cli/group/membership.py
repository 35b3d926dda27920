"""Joins a group for the commands of `reknit group`: prints its events, sends to it, lists its members."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import typer

from reknit.cli.group.network import NetworkOptions
from reknit.cli.output import counted, events, fail, print_json, say
from reknit.cli.running import run
from reknit.client.group.datagrams import GroupTransport
from reknit.client.group.group import Group
from reknit.client.group.journal import GroupJournal
from reknit.client.group.keys import GroupKeys
from reknit.client.group.observer import look
from reknit.client.session import connect
from reknit.transport.udp import UdpConfig, UdpTransport
from reknit.transport.udp_over_tcp import TcpConfig, TcpDatagrams
from reknit.view import View


def _transport(network: NetworkOptions) -> GroupTransport:
    if network.tcp:
        return TcpDatagrams(TcpConfig(interface=network.interface))
    return UdpTransport(UdpConfig(group=network.address, interface=network.interface))


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """How to join a group."""

    name: str
    network: NetworkOptions
    member: str
    discard_own: bool

    async def use(self, action: Callable[[Group], Awaitable[None]], node: str | None) -> None:
        """Join the group and run `action` with it. If a node is given, it stores the group's events."""
        if node is None:
            await action(self._group(None))
            return
        async with connect(node) as session:
            await action(self._group(session.group_journal(self.name)))

    def _group(self, journal: GroupJournal | None) -> Group:
        return Group(
            self.name,
            _transport(self.network),
            member=self.member,
            seeds=self.network.seed or (),
            discard_own=self.discard_own,
            journal=journal,
            keys=GroupKeys.configured(self.network.key_file),
        )


# -- join


async def print_events(group: Group, count: int | None) -> None:
    """Join, and print events until `count` of them are printed or the program is stopped."""
    group.on_view = _print_view
    group.on_lost = lambda lost: say(f"lost: {events(lost.stop - lost.start)} of {lost.source.hex()[:8]}")
    async with group:
        for warning in group.warnings:
            say(f"warning: {warning}")
        say(f"joined {group.name} at {group.address}")
        number = 0
        async for event in group:
            typer.echo(f"{group.name_of(event.source)}\t{event.payload.decode(errors='backslashreplace')}")
            number += 1
            if number == count:
                break


def _print_view(view: View) -> None:
    names = ", ".join(member.name or member.id.hex()[:8] for member in view.members)
    say(f"{counted(len(view.members), 'member')}: {names}")


# -- send


async def send_events(group: Group, payload: str | None, members: int, wait_s: float) -> None:
    """Join, wait for members, and send a payload or the lines of stdin; return when every member has them."""
    is_complete = asyncio.Event()
    group.on_view = lambda view: is_complete.set() if len(view.members) >= members else None
    async with group:
        try:
            async with asyncio.timeout(wait_s):
                await is_complete.wait()
        except TimeoutError:
            found = counted(len(group.members) - 1, "other member")
            fail(f"{found} in group {group.name!r} after {wait_s:g} s: join one, or pass --members 1")
        reading = asyncio.create_task(_discard_received(group))
        others = len(group.members) - 1  # counted now: a member may leave before the last event is sent
        sent = 0
        async for line in _payloads(payload):
            await group.send(line)
            sent += 1
        await group.settled()
        reading.cancel()
        typer.echo(f"{events(sent)} sent to {counted(others, 'other member')}")


async def _payloads(payload: str | None) -> AsyncIterator[bytes]:
    if payload is not None:
        yield payload.encode()
        return
    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        yield line.rstrip(b"\n")


async def _discard_received(group: Group) -> None:
    """Read the events that others send meanwhile, so that their windows do not fill up."""
    async for _ in group.batches():
        pass


# -- members


def list_members(name: str, network: NetworkOptions, as_json: bool) -> None:
    """Print the members of every view of the group: more than one if the group is partitioned."""
    keys = GroupKeys.configured(network.key_file)
    views = run(look(name, _transport(network), network.seed or (), keys=keys))
    if as_json:
        print_json([_as_json(view) for view in views])
        return
    if not views:
        where = f"{network.address} on {network.interface}"
        fail(f"no member of group {name!r} answers at {where}: check address, interface and key")
    for number, view in enumerate(views):
        if number:
            typer.echo("partitioned from")
        for member in view.members:
            typer.echo(f"{member.id.hex()}\t{member.address}\t{member.name}")


def _as_json(view: View) -> dict[str, object]:
    rows = [{"id": m.id.hex(), "name": m.name, "address": m.address} for m in view.members]
    return {"counter": view.counter, "coordinator": view.coordinator.hex(), "members": rows}
