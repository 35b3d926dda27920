"""Datagrams of groups: a group of three in virtual time, and a stranger that sends it mutated datagrams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import cache
from random import Random
from typing import Any, Final

import msgspec

from reknit.client.group.group import Group
from reknit.client.group.keys import GroupKeys
from reknit.protocol.multicast.settings import GroupSettings
from reknit.protocol.sealing.shared_keys import SharedKeys
from reknit.testing.fabric.fabric import Fabric
from reknit.testing.fabric.programs.attacks import mutate_bytes
from reknit.testing.fabric.virtual.logs import tracebacks
from reknit.testing.fuzz.inputs import SAY, Step
from reknit.testing.fuzz.mutations import mutate_order, mutate_value
from reknit.testing.fuzz.targets.target import LocalTarget
from reknit.transport.udp import OnDatagram
from reknit.wire.bundle import ENVELOPE, MESSAGE, PIECE, Datagram

NAME: Final = "robots"
MEMBERS: Final = ("A", "B", "C")
SENDER_AT: Final = slice(16, 32)
STRANGER: Final = b"a stranger's id!"
STRANGERS: Final = (STRANGER, b"another stranger")
SETTINGS: Final = GroupSettings(
    capacity_events=200, window_bytes=40_000, batch_bytes_max=4_000, suspect_s=2.0, slow_s=1.0
)
ROUNDS: Final = 3
"""How often members send while the datagrams come."""
ROUND_S: Final = 0.2
REST_S: Final = 20.0
"""How long the group has to bring every event to everyone, once the stranger is silent."""
STEPS_MAX: Final = 400_000
"""With more, the members only keep each other busy."""
FORGED: Final = "forged"
"""The datagrams name members as their senders. Then events may be lost, as anyone who can send them could leave for
another member; but no error may be raised, and nothing comes twice."""

KEYED: Final = "keyed"
"""The members share a key, and the stranger has a recording of an earlier life of the group. It can do no harm."""
KEY: Final = SharedKeys.parse("5e" * 32)

Run = Callable[["Wire", Fabric], Coroutine[Any, Any, str]]


class Wire:
    """Brings datagrams from one transport to the others, and takes note of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.transports: dict[str, WireTransport] = {}
        self.seen: list[bytes] = []

    def carry(self, data: bytes, address: str, sender: str) -> None:
        """Bring a datagram to an address, a little later."""
        to = self.transports.get(address)
        if to is not None:
            self.loop.call_later(0.0005, to.receive, data, sender)


class WireTransport:
    """The datagrams of one member."""

    is_reply_possible = False
    buffer_bytes = 1 << 20
    datagram_bytes = piece_bytes = 700

    def __init__(self, wire: Wire, address: str) -> None:
        self.address, self.warnings = address, list[str]()
        self._wire, self._peers = wire, list[str]()
        self._on_datagram: OnDatagram = lambda data, address: None
        self._on_turn: Callable[[], None] = lambda: None

    async def listen(self) -> None:
        self._wire.transports[self.address] = self

    async def open(self, on_datagram: OnDatagram, on_turn: Callable[[], None]) -> None:
        self._on_datagram, self._on_turn = on_datagram, on_turn

    async def close(self) -> None:
        self._wire.transports.pop(self.address, None)

    def set_peers(self, addresses: Sequence[str]) -> None:
        self._peers = [address for address in addresses if address != self.address]

    def send_all(self, datagrams: list[Datagram]) -> None:
        for address in self._peers:
            self.send(datagrams, address)

    def send(self, datagrams: list[Datagram], address: str) -> None:
        for parts in datagrams:
            data = b"".join(parts)
            self._wire.seen.append(data)
            self._wire.carry(data, address, self.address)

    def receive(self, data: bytes, sender: str) -> None:
        """A datagram came."""
        host, _, port = sender.rpartition(":")
        self._on_datagram(data, (host, int(port)))
        self._on_turn()


def _address(name: str) -> str:
    return f"10.0.0.{MEMBERS.index(name) + 1}:7475"


class DatagramTarget(LocalTarget):
    """A stranger on the group's network."""

    name = "datagrams"

    def make(self, rng: Random) -> tuple[Step, ...]:
        kind = rng.random()
        if kind < 0.25:
            known = captured(KEYED) if rng.random() < 0.8 else captured()
            parts = [rng.choice(known) for _ in range(rng.randint(1, 12))]
            if rng.random() < 0.5:
                parts = mutate_order(rng, parts, known, mutate_bytes)
            return (Step(KEYED), *(Step(SAY, part) for part in parts if part))
        is_forged = kind < 0.5
        known = captured()
        parts = [rng.choice(known) for _ in range(rng.randint(1, 8))]
        parts = mutate_order(rng, parts, known, mutate_datagram)
        if not is_forged:
            parts = [from_stranger(rng, part) for part in parts]
        return ((Step(FORGED),) if is_forged else ()) + tuple(Step(SAY, part) for part in parts if part)

    def problem(self, steps: tuple[Step, ...]) -> str:
        return _in_group(lambda wire, fabric: _attack(wire, fabric, steps))


@cache
def captured(how: str = "") -> list[bytes]:
    """What three members say to each other, and what else they could say; sealed ones of an earlier life."""

    async def quiet(wire: Wire, fabric: Fabric) -> str:
        problem = await _attack(wire, fabric, (Step(how),) if how else ())
        found.extend(dict.fromkeys(wire.seen))
        return problem

    found: list[bytes] = []
    problem = _in_group(quiet, seed=8 if how else 7)
    assert not problem, problem
    return found


def _in_group(run: Run, seed: int = 7) -> str:
    """Run something with a wire, in virtual time. Returns what is wrong."""
    with Fabric(seed=seed) as fabric:
        host = fabric.host("lan")
        with tracebacks(fabric.logged):
            problem = fabric.run(host.run(run(Wire(fabric.loop), fabric)))
        wrong = [*fabric.logged, *fabric.errors]
        return problem or (f"Traceback: {wrong[0]}" if wrong else "")


async def _attack(wire: Wire, fabric: Fabric, steps: tuple[Step, ...]) -> str:
    """Three members send to each other, and a stranger to all of them. Returns what is wrong."""
    keys = GroupKeys(KEY) if any(step.do == KEYED for step in steps) else None
    groups = [_group(wire, name, keys) for name in MEMBERS]
    await asyncio.gather(*(group.__aenter__() for group in groups))
    while not all(len(group.members) == len(MEMBERS) for group in groups):  # noqa: ASYNC110 (in virtual time)
        await asyncio.sleep(0.1)
    got: list[list[tuple[bytes, int, bytes]]] = [[] for _ in groups]
    readers = [asyncio.ensure_future(_read(group, into)) for group, into in zip(groups, got, strict=True)]
    sent = 0
    said = [step.data for step in steps if step.do == SAY]
    for turn in range(ROUNDS):
        for data in said[turn * len(said) // ROUNDS : (turn + 1) * len(said) // ROUNDS]:
            for name in MEMBERS:
                wire.carry(data, _address(name), "10.0.0.99:7475")
        for group in groups:
            if group.why_left is None:
                group.send_nowait(b"%d" % sent)
        sent += 1
        await asyncio.sleep(ROUND_S)
    problem = await _rested(fabric, groups, got, sent, any(step.do == FORGED for step in steps))
    if keys is not None and not problem:
        problem = _strange_event(groups, got)
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*(group.close(settle_s=0.0) for group in groups), *readers, return_exceptions=True)
    return problem


def _group(wire: Wire, name: str, keys: GroupKeys | None) -> Group:
    seeds = [_address(other) for other in MEMBERS if other != name]
    transport = WireTransport(wire, _address(name))
    return Group(NAME, transport, member=name, seeds=seeds, settings=SETTINGS, keys=keys)


async def _read(group: Group, into: list[tuple[bytes, int, bytes]]) -> None:
    async for event in group:
        into.append((event.source, event.seq, bytes(event.payload)))  # noqa: PERF401 (they are looked at meanwhile)


async def _rested(
    fabric: Fabric, groups: list[Group], got: list[list[tuple[bytes, int, bytes]]], sent: int, is_forged: bool
) -> str:
    """Wait until every event is everywhere. Returns what is wrong."""
    deadline = fabric.loop.now + REST_S
    wanted = {(group.id, b"%d" % number) for group in groups for number in range(sent)}
    ids = {group.id for group in groups}
    while fabric.loop.now < deadline and fabric.loop.steps < STEPS_MAX:
        await asyncio.sleep(0.5)
        if is_forged or all(wanted <= {(source, payload) for source, _, payload in one} for one in got):
            break
    if fabric.loop.steps >= STEPS_MAX:
        return "the members only keep each other busy"
    for name, group, one in zip(MEMBERS, groups, got, strict=True):
        honest = [(source, seq, payload) for source, seq, payload in one if source in ids]
        for source in ids:
            seqs = [seq for found, seq, _ in honest if found == source]
            if seqs != sorted(set(seqs)):
                return f"a member got events twice or out of order\n{name}: {seqs}"
        missing = wanted - {(source, payload) for source, _, payload in one}
        if missing and not is_forged and not group.why_left:
            return f"a member misses events\n{name}: {len(missing)} of {len(wanted)}, lost are {list(group.lost)}"
        if group.why_left and not is_forged:
            return f"a member is out of the group\n{name}: {group.why_left}"
    return ""


def _strange_event(groups: list[Group], got: list[list[tuple[bytes, int, bytes]]]) -> str:
    """An event that no member sent in this life. Returns what is wrong."""
    ids = {group.id for group in groups}
    strange = [event for one in got for event in one if event[0] not in ids]
    return (
        f"an event of somebody without the key, or of an earlier life, came\n{strange[0]}" if strange else ""
    )


# -- mutations


def from_stranger(rng: Random, datagram: bytes) -> bytes:
    """The same datagram from someone who is no member."""
    if len(datagram) < ENVELOPE.size:
        return datagram
    return datagram[: SENDER_AT.start] + rng.choice(STRANGERS) + datagram[SENDER_AT.stop :]


def mutate_datagram(rng: Random, datagram: bytes) -> bytes:
    """Another field of a message or of a piece, or other bytes."""
    at = ENVELOPE.size
    if len(datagram) < at + MESSAGE.size or rng.random() < 0.15:
        return mutate_bytes(rng, datagram or b"x")
    if datagram[at] == 2:
        return _mutate_message(rng, datagram, at)
    if datagram[at] == 1 and len(datagram) >= at + PIECE.size:
        fields = list(PIECE.unpack_from(datagram, at))
        which = rng.randrange(1, len(fields))
        limits = (1, 8, 16, 16, 16, 64, 32, 32)
        fields[which] = rng.choice((0, 1, fields[which] + 1, (1 << limits[which]) - 1)) % (1 << limits[which])
        return datagram[:at] + PIECE.pack(*fields) + datagram[at + PIECE.size :]
    return mutate_bytes(rng, datagram)


def _mutate_message(rng: Random, datagram: bytes, at: int) -> bytes:
    length = MESSAGE.unpack_from(datagram, at)[3]
    start = at + MESSAGE.size
    try:
        kind, *fields = msgspec.msgpack.decode(datagram[start : start + length])
        if rng.random() < 0.05 or not fields:
            kind = rng.randrange(30)
        else:
            fields = mutate_value(rng, fields)
        body = msgspec.msgpack.encode([kind, *(fields if isinstance(fields, list) else [fields])])
    except (ValueError, TypeError, OverflowError, msgspec.DecodeError):
        return mutate_bytes(rng, datagram)
    return datagram[:at] + MESSAGE.pack(2, 0, 0, len(body)) + body + datagram[start + length :]
