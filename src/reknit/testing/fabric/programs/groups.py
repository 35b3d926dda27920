"""Programs that are members of a group: they send events to each other, and their nodes store them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any, Final

from reknit.client.group.group import Group, transport_of
from reknit.client.group.keys import GroupKeys
from reknit.client.group.observer import look
from reknit.client.options import GroupOptions
from reknit.config import MulticastSettings
from reknit.errors import Full
from reknit.protocol.multicast.effects import DeadLetteredEvents, LostEvents
from reknit.seqset import SeqSet
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.programs.group_keys import KeyRotation
from reknit.testing.fabric.programs.program import CLIENT, ListeningProgram, Program, Scene
from reknit.testing.fabric.programs.subscribers import SubscribingProgram
from reknit.testing.fabric.record import Seen
from reknit.view import View

GROUP: Final = "robots"
TOPIC: Final = f"group/{GROUP}"
ADDRESS: Final = "239.75.78.84:7475"
PORT: Final = 7475
AWAY_S: Final = 1.0


@dataclass(slots=True, eq=False)
class GroupLife:
    """A member from when it joined until it left or crashed. Its id is its source, and no other life has it."""

    name: str
    node: str
    group: Group
    seen: Seen
    id: bytes = b""
    is_over: bool = False
    is_settled: bool = False
    """Every member's application has everything that it sent."""
    views: list[View] = field(default_factory=list)
    sent: dict[bytes, frozenset[bytes]] = field(default_factory=dict)
    """The payloads that it sent, and who was a member then."""
    received: dict[bytes, SeqSet] = field(default_factory=dict)
    """By source."""
    lost: dict[bytes, SeqSet] = field(default_factory=dict)
    dead: dict[bytes, SeqSet] = field(default_factory=dict)
    """Its own events that are dead letters, by member."""

    def known(self, source: bytes) -> SeqSet:
        """What it received of a source, and what it was told is lost."""
        return self.received.get(source, SeqSet()).union(self.lost.get(source, SeqSet()))

    def was_with(self, other: bytes) -> bool:
        """Whether it never saw another member go, once that was there."""
        has = [other in view for view in self.views]
        return any(has) and all(has[has.index(True) :])


def group_members(scene: Scene) -> list[Program]:
    """The members of a plan's group, and a subscriber that gets the group's events from a node."""
    plan, rng = scene.plan, scene.fabric.rng("groups")
    if not plan.members:
        return []
    nodes = [node for node in scene.fabric.nodes.values() if node.name not in scene.outposts]
    made: list[Program] = [SubscribingProgram(scene, "gd", rng.choice(nodes), "group/**", is_durable=True)]
    members = [MemberProgram(scene, f"m{at}", rng.choice(nodes)) for at in range(plan.members)]
    keys = KeyRotation(scene.fabric.rng("group keys"), plan.group_keys) if plan.group_keys else None
    for member in members:
        member.keys = keys
        member.seeds = tuple(f"{other.host.address}:{PORT}" for other in members if other is not member)
    return [*made, *members]


class MemberProgram(ListeningProgram):
    """Joins, sends and reads, and may leave and join again."""

    seeds: tuple[str, ...] = ()
    keys: KeyRotation | None = None

    def __init__(self, scene: Scene, name: str, node: FabricNode) -> None:
        super().__init__(scene, name, node)
        self.life: GroupLife | None = None
        self._count = 0
        plan = scene.plan
        self._is_reading_own = self.rng.random() < 0.7
        self._settings = MulticastSettings(
            address=ADDRESS if plan.group_network == "multicast" else "",
            interface=self.host.address,
            port=PORT,
            tcp=plan.group_network == "tcp",
            capacity_events=plan.group_capacity,
            slow_member=plan.group_slow,
            slow_s=2.0,
        )

    @property
    def is_done(self) -> bool:
        return self.scene.is_calm and self.life is not None and self.life.is_settled

    def crash(self) -> None:
        self._end()
        super().crash()

    def _end(self) -> None:
        self.is_open = False
        if self.keys is not None:
            self.keys.leave(self.name)
        if self.life is not None:
            self.life.is_over = True
            self.life = None

    async def live(self) -> None:
        while True:
            config = replace(CLIENT, group=self._settings)
            async with self.scene.fabric.session(
                self.node.url, self.name, config=config, wait_s=30.0
            ) as session:
                await self._be_member(session)
            await asyncio.sleep(self.rng.uniform(0.0, AWAY_S))
            if self.rng.random() < 0.3:
                await self._look()

    async def _look(self) -> None:
        keys = None if self.keys is None else GroupKeys(self.keys.join(self.name))
        try:
            await look(GROUP, transport_of(replace(self._settings, port=0)), self._used_seeds(), keys=keys)
        finally:
            self._end()

    def _used_seeds(self) -> tuple[str, ...]:
        return () if self._settings.address else self.seeds

    async def _be_member(self, session: Any) -> None:
        options = GroupOptions(
            seeds=self._used_seeds(),
            discard_own=not self._is_reading_own,
            keys=None if self.keys is None else self.keys.join(self.name),
        )
        group = session.make_group(GROUP, options)
        seen = Seen(self.name, TOPIC, self.node.name, False)
        life = GroupLife(self.name, self.node.name, group, seen)
        group.on_view = life.views.append
        group.on_lost = lambda lost: self._lose(life, lost)
        group.on_dead_letter = lambda dead: self._dead_letter(life, dead)
        try:
            async with group:
                life.id, self.life = group.id, life
                self.scene.lives.append(life)
                self.is_open = True
                await self._live_in(group, life)
                life.is_over = True  # from now on it reads nothing
        finally:
            self._end()

    async def _live_in(self, group: Group, life: GroupLife) -> None:
        reading = asyncio.create_task(self._read(group, life))
        writing = asyncio.create_task(self._write(group, life))
        try:
            await asyncio.wait([reading, writing], return_when=asyncio.FIRST_COMPLETED)
            for task in (reading, writing):
                if task.done():
                    task.result()
        finally:
            for task in (reading, writing):
                task.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)

    async def _write(self, group: Group, life: GroupLife) -> None:
        plan = self.scene.plan
        while not self.scene.is_calm:
            await asyncio.sleep(self.rng.expovariate(plan.put_rate))
            if self.rng.random() < plan.member_leave_share:
                return
            await self._send(group, life)
            if self.keys is not None and (keys := self.keys.next(self.name)) is not None:
                group.use_keys(keys)
        await group.settled()
        life.is_settled = True
        await asyncio.get_running_loop().create_future()

    async def _send(self, group: Group, life: GroupLife) -> None:
        record, ids = self.scene.record, frozenset(member.id for member in group.members)
        sent = [
            record.put(self._payload(), TOPIC, self.name)
            for _ in range(self.rng.randint(1, self.scene.plan.burst_max))
        ]
        payloads = [one.payload for one in sent]
        try:
            if self.rng.random() < 0.5:
                for payload in payloads:
                    await group.send(payload, timeout_s=5.0)
                    life.sent[payload] = ids
            else:
                await group.send_many(payloads, timeout_s=5.0)
                life.sent |= dict.fromkeys(payloads, ids)
        except Full:
            pass  # none of the rest was sent

    def _payload(self) -> bytes:
        self._count += 1
        return f"{self.name} {self._count} ".encode() + b"." * self.rng.randrange(
            self.scene.plan.payload_bytes_max
        )

    # -- reading

    async def _read(self, group: Group, life: GroupLife) -> None:
        async for event in group:
            self._take(life, event)
            if not self.scene.is_calm and self.rng.random() < 0.2:
                await asyncio.sleep(self.rng.uniform(0.0, self.scene.plan.think_s_max))

    def _take(self, life: GroupLife, event: Any) -> None:
        source, seq, record = event.source, event.seq, self.scene.record
        record.received(life.seen, event.topic, source, seq, bytes(event.payload))
        received = life.received.setdefault(source, SeqSet())
        if received:
            missing = [
                part
                for bounds in received.missing(received.last + 1, seq)
                for part in life.lost.get(source, SeqSet()).missing(*bounds)
            ]
            if seq <= received.last or missing:
                record.blame(f"{self.name} received {source.hex()} {seq} after {received.last}: {missing}")
        received.add(seq, seq + 1)

    def _lose(self, life: GroupLife, lost: LostEvents) -> None:
        life.lost.setdefault(lost.source, SeqSet()).add(lost.start, lost.stop)

    def _dead_letter(self, life: GroupLife, dead: DeadLetteredEvents) -> None:
        life.dead.setdefault(dead.member, SeqSet()).add(dead.start, dead.stop)
