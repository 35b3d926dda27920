"""`reknit group`: send events to a group of programs, read them, and see who is in it.

No node is needed; with one, it keeps what the group carries.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from reknit.cli.options import AsJson
from reknit.cli.output import fail, log_to_stderr, print_json, say

if TYPE_CHECKING:
    from reknit.client.group.datagrams import GroupTransport
    from reknit.client.group.group import Group
    from reknit.view import View

app = typer.Typer(help="Groups: programs that send events to each other, reliably.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name, which is also its topic.")]
Address = Annotated[
    str,
    typer.Option(metavar="HOST:PORT", help="The multicast address; empty to use seeds only."),
]
Interface = Annotated[str, typer.Option(metavar="IP", help="The address of the network interface to use.")]
Seeds = Annotated[
    list[str] | None,
    typer.Option("--seed", metavar="HOST:PORT", help="A member's address; may be given several times."),
]
Tcp = Annotated[
    bool, typer.Option("--tcp", help="Use TCP connections, where multicast can't be had (needs --seed).")
]
Node = Annotated[
    str | None, typer.Option("--node", metavar="URL", help="Bring the group's events to this node, too.")
]
Member = Annotated[str, typer.Option("--as", metavar="NAME", help="What the others see you as.")]

DEFAULT_ADDRESS = "239.75.78.84:7475"
LOOPBACK = "127.0.0.1"


def _transport(address: str, interface: str, tcp: bool) -> GroupTransport:
    from reknit.transport.udp import UdpConfig, UdpTransport
    from reknit.transport.udp_over_tcp import TcpConfig, TcpDatagrams

    if tcp:
        return TcpDatagrams(TcpConfig(interface=interface))
    return UdpTransport(UdpConfig(group=address, interface=interface))


async def _with_group(
    name: str,
    transport: GroupTransport,
    seeds: list[str] | None,
    member: str,
    discard_own: bool,
    node: str | None,
    use: Callable[[Group], Awaitable[None]],
) -> None:
    """Use a group that is brought to a node, if there is one."""
    from reknit.client.group.group import Group
    from reknit.client.group.journal import GroupJournal
    from reknit.client.session import connect

    def member_of(journal: GroupJournal | None) -> Group:
        return Group(
            name,
            transport,
            member=member,
            seeds=seeds or (),
            discard_own=discard_own,
            journal=journal,
        )

    if node is None:
        await use(member_of(None))
        return
    async with connect(node) as session:
        await use(member_of(session.group_journal(name)))


def _say_view(view: View) -> None:
    names = ", ".join(member.name or member.id.hex()[:8] for member in view.members)
    say(f"{len(view.members)} member{'s' if len(view.members) != 1 else ''}: {names}")


@app.command()
def join(
    group: Name,
    count: Annotated[int | None, typer.Option(min=1, metavar="N", help="Leave after so many events.")] = None,
    address: Address = DEFAULT_ADDRESS,
    interface: Interface = LOOPBACK,
    seed: Seeds = None,
    tcp: Tcp = False,
    node: Node = None,
    member: Member = "",
) -> None:
    """Join a group and print what its members send, a line an event."""
    from reknit.cli.running import run

    log_to_stderr()
    transport = _transport(address, interface, tcp)
    run(_with_group(group, transport, seed, member, False, node, lambda joined: _join(joined, count)))


async def _join(group: Group, count: int | None) -> None:
    group.on_view = _say_view
    group.on_lost = lambda lost: say(f"lost: {lost.stop - lost.start} events of {lost.source.hex()[:8]}")
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


@app.command()
def send(
    group: Name,
    payload: Annotated[
        str | None, typer.Argument(metavar="PAYLOAD", help="The event.  [default: stdin, a line an event]")
    ] = None,
    members: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Wait until the group has so many members, you among them."),
    ] = 2,
    wait_s: Annotated[
        float, typer.Option("--wait", min=0.0, metavar="S", help="For at most so long.")
    ] = 10.0,
    address: Address = DEFAULT_ADDRESS,
    interface: Interface = LOOPBACK,
    seed: Seeds = None,
    tcp: Tcp = False,
    node: Node = None,
    member: Member = "",
) -> None:
    """Send events to a group, and return when every member has them."""
    from reknit.cli.running import run

    log_to_stderr()
    transport = _transport(address, interface, tcp)

    async def use(joined: Group) -> None:
        await _send(joined, payload, members, wait_s)

    run(_with_group(group, transport, seed, member, True, node, use))


async def _send(group: Group, payload: str | None, members: int, wait_s: float) -> None:
    is_complete = asyncio.Event()
    group.on_view = lambda view: is_complete.set() if len(view.members) >= members else None
    async with group:
        try:
            async with asyncio.timeout(wait_s):
                await is_complete.wait()
        except TimeoutError:
            found = len(group.members) - 1
            fail(f"{found} other members in {group.name} after {wait_s:g} s: join one, or pass --members 1")
        reading = asyncio.create_task(_read_past(group))
        sent, others = 0, len(group.members) - 1  # who has had enough may leave before we are done
        if payload is not None:
            await group.send(payload.encode())
            sent = 1
        else:
            while line := await asyncio.to_thread(sys.stdin.buffer.readline):
                await group.send(line.rstrip(b"\n"))
                sent += 1
        await group.settled()
        reading.cancel()
        typer.echo(f"{sent} sent to {others} others")


async def _read_past(group: Group) -> None:
    """What others send meanwhile is not for us, but must not hold them up."""
    async for _ in group.batches():
        pass


@app.command()
def members(
    group: Name,
    as_json: AsJson = False,
    address: Address = DEFAULT_ADDRESS,
    interface: Interface = LOOPBACK,
    seed: Seeds = None,
    tcp: Tcp = False,
) -> None:
    """List the members of a group, by rank, without joining it."""
    from reknit.cli.running import run
    from reknit.client.group.observer import look

    views = run(look(group, _transport(address, interface, tcp), seed or ()))
    if as_json:
        print_json([_as_dict(view) for view in views])
    elif not views:
        fail(f"nobody answers for group {group} at {address} on {interface}: check the address and interface")
    for number, view in enumerate(() if as_json else views):
        if number:
            typer.echo("divided from")
        for member in view.members:
            typer.echo(f"{member.id.hex()}\t{member.address}\t{member.name}")


def _as_dict(view: View) -> dict[str, object]:
    rows = [{"id": m.id.hex(), "name": m.name, "address": m.address} for m in view.members]
    return {"counter": view.counter, "coordinator": view.coordinator.hex(), "members": rows}
