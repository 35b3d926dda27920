"""Programs with an identity: they use their node up to their quotas, try to have more, and trespass."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

from reknit.errors import Refused
from reknit.outcome import Code
from reknit.testing.fabric.identities import GUEST, secret_of, tenants, topics_of
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.programs.program import CLIENT, EXPECTED, Program, Scene
from reknit.testing.fabric.programs.tenants.doors import TenantAtAmqp, TenantAtHttp
from reknit.testing.fabric.programs.tenants.guests import GuestProgram
from reknit.testing.fabric.programs.tenants.held_quotas import identities_keep_their_quotas, names_of
from reknit.testing.fabric.record import Sent

FOREIGN: Final = "tenant/somebody/a"
"""A topic that no tenant may use."""
FORGET_SHARE: Final = 0.4


def tenant_programs(scene: Scene) -> list[Program]:
    """The tenants of a plan."""
    rng, nodes = scene.fabric.rng("tenants"), list(scene.fabric.nodes.values())
    programs: list[Program] = [TenantProgram(scene, name, rng.choice(nodes)) for name in tenants(scene.plan)]
    return [*programs, GuestProgram(scene, GUEST, rng.choice(nodes))] if programs else []


class TenantProgram(Program):
    """Publishes as much as it can, and does something else meanwhile. At the end it leaves nothing behind."""

    def __init__(self, scene: Scene, name: str, node: FabricNode) -> None:
        super().__init__(scene, name, node)
        self.topic = topics_of(name).replace("**", "a")
        self._count = 0
        self._is_over = False
        self._http = TenantAtHttp(scene, name, node, FOREIGN)
        self._amqp = TenantAtAmqp(scene, name, node, FOREIGN)

    @property
    def is_done(self) -> bool:
        return self._is_over

    def connect(self, wait_s: float = 2.0) -> Any:
        """A session with this tenant's token."""
        return self.scene.fabric.session(
            self.node.url, config=CLIENT, wait_s=wait_s, token=secret_of(self.name)
        )

    async def live(self) -> None:
        await asyncio.gather(self._publish_on(), self._act_on())
        await self._leave()
        self._is_over = True

    # -- publishing

    async def _publish_on(self) -> None:
        """Publish far more than the quota allows, as long as there are faults. Publishing waits then."""
        while not self.scene.is_calm:
            with suppress(*EXPECTED):
                await self._publish(self.rng.randint(1, self.scene.plan.burst_max))
            await self.scene.sleep_until_calm(self.rng.expovariate(self.scene.plan.put_rate))

    async def _publish(self, count: int) -> None:
        burst = [self.put() for _ in range(count)]
        async with self.connect() as session:
            await session.publish_many(self.topic, [sent.payload for sent in burst])
            for sent in burst:
                self.scene.record.stored(sent)

    def put(self) -> Sent:
        """The next event."""
        self._count += 1
        return self.scene.record.put(f"{self.name} {self._count} ".encode(), self.topic, self.name)

    # -- everything else

    async def _act_on(self) -> None:
        acts = [self._crowd, self._subscribe, self._trespass]
        acts.append(lambda: self._http.act(self.put))
        if self._amqp.is_open:
            acts.append(lambda: self._amqp.act(self.put))
        while not self.scene.is_calm:
            with suppress(*EXPECTED):
                await self.rng.choice(acts)()
            await self.scene.sleep_until_calm(self.rng.expovariate(self.scene.plan.put_rate))

    async def _crowd(self) -> None:
        """Open more sessions than allowed. Those that are too many are refused, and told so."""
        async with AsyncExitStack() as sessions:
            for _ in range(self.scene.plan.quota_connections + 1):
                try:
                    await sessions.enter_async_context(self.connect())
                except Refused as error:
                    self._expect(error, Code.RESOURCE_EXHAUSTED, "a connection")
            self.scene.record.problems += identities_keep_their_quotas(self.scene)

    async def _subscribe(self) -> None:
        """Subscribe by one of more names than allowed, and perhaps give the name back."""
        name = f"{self.name}.{self.rng.randrange(self.scene.plan.quota_names + 2)}"
        async with self.connect() as session:
            try:
                async with session.subscribe(topics_of(self.name), name=name) as events:
                    self.scene.record.problems += identities_keep_their_quotas(self.scene)
                    if self.rng.random() < FORGET_SHARE:
                        await events.forget()
            except Refused as error:
                self._expect(error, Code.RESOURCE_EXHAUSTED, f"the name {name}")
                held = names_of(self.node, self.name)
                if self.node.is_up and len(held) < self.scene.plan.quota_names:
                    self.scene.record.blame(f"{self.name} was refused the name {name}, and has only {held}")

    async def _trespass(self) -> None:
        """Use topics of somebody else, and ask what only an admin may. All of it is refused."""
        attempts: tuple[tuple[str, Callable[[Any], Awaitable[Any]]], ...] = (
            ("publish", lambda session: session.publish(FOREIGN, b"mine")),
            ("subscribe", lambda session: session.subscribe(FOREIGN).__aenter__()),
            ("status", lambda session: session.status()),
            ("pause", lambda session: session.pause("**")),
            ("find", lambda session: session.ask("find", topic=FOREIGN, source=b"", start=1, stop=2)),
        )
        for what, tried in attempts:
            try:
                async with self.connect() as session:
                    await tried(session)
                    self.scene.record.blame(f"{self.name} may not {what} on {FOREIGN}, and did")
            except Refused as error:
                self._expect(error, Code.PERMISSION_DENIED, what)
        async with self.connect() as session:
            await session.ask("checkpoint", pattern=topics_of(self.name))

    def _expect(self, error: Refused, code: Code, what: str) -> None:
        """Blame a refusal for another reason. A node that stops, or has no room for a session, refuses everything."""
        if error.code not in (code, Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED):
            self.scene.record.blame(f"{self.name} was refused {what} with {error!r}, not with {code.name}")

    async def _leave(self) -> None:
        """Whoever was refused gets in again once there is room. No name stays behind: nobody would take its events."""
        await self._publish(1)
        for name in names_of(self.node, self.name):
            async with (
                self.connect() as session,
                session.subscribe(topics_of(self.name), name=name) as events,
            ):
                await events.forget()
