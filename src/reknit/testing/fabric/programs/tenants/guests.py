"""A program whose token is taken away and given back while it is connected."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from reknit.errors import Closed, NotConnected, Refused
from reknit.outcome import Code
from reknit.testing.fabric.identities import GUEST, secret_of, topics_of, write_tokens
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.programs.program import CLIENT, EXPECTED, Program, Scene

KEPT_S: Final = 0.5
"""How long its token is worth nothing."""


def revoked_tokens_are_worthless(scene: Scene) -> Iterator[str]:
    """A token that is revoked opens no connection, and those that it opened have ended."""
    revoked = scene.record.revoked
    for node in scene.fabric.nodes.values() if revoked else ():
        for peer in node.node.peers if node.is_up else ():
            if peer.identity in revoked and not peer.is_leaving:
                yield f"{peer.identity} has a connection to {node.name}, and its token is revoked"


class GuestProgram(Program):
    """Publishes, loses its token in the middle of it, and gets it back."""

    def __init__(self, scene: Scene, name: str, node: FabricNode) -> None:
        super().__init__(scene, name, node)
        self._topic = topics_of(GUEST).replace("**", "a")
        self._count = 0
        self._is_over = False

    @property
    def is_done(self) -> bool:
        return self._is_over

    async def live(self) -> None:
        while not self.scene.is_calm:
            self._give(is_valid=True)  # also in the next life of the host, if it crashed
            with suppress(*EXPECTED):
                await self._be_thrown_out()
            self._give(is_valid=True)
            await self.scene.sleep_until_calm(self.rng.expovariate(1.0))
        await self._publish_alone()  # it is let in again
        self._is_over = True

    def _connect(self) -> Any:
        return self.scene.fabric.session(self.node.url, config=CLIENT, wait_s=2.0, token=secret_of(GUEST))

    def _give(self, is_valid: bool) -> None:
        """An operator changes the file of tokens, and tells every node."""
        write_tokens(self.scene.plan, self.scene.fabric.folder, has_guest=is_valid)
        self.scene.record.revoked = frozenset(() if is_valid else (GUEST,))
        for node in self.scene.fabric.nodes.values():
            if node.is_running and node.is_up:
                node.node.reloader.reload()

    async def _publish(self, session: Any) -> None:
        self._count += 1
        sent = self.scene.record.put(f"{self.name} {self._count} ".encode(), self._topic, self.name)
        await session.publish(self._topic, sent.payload)
        self.scene.record.stored(sent)

    async def _publish_alone(self) -> None:
        async with self._connect() as session:
            await self._publish(session)

    async def _be_thrown_out(self) -> None:
        async with self._connect() as session:
            await self._publish(session)
            self._give(is_valid=False)
            self.scene.record.problems += revoked_tokens_are_worthless(self.scene)
            try:
                async with asyncio.timeout(KEPT_S):
                    await self._publish(session)
                    self.scene.record.blame(f"{self.name} published after its token was revoked")
            except (Refused, NotConnected, Closed, TimeoutError) as error:
                self._expect(error)
        try:
            await self._publish_alone()
            self.scene.record.blame(f"{self.name} connected with a revoked token")
        except Refused as error:
            self._expect(error)

    def _expect(self, error: Exception) -> None:
        codes = (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED, Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED)
        if isinstance(error, Refused) and error.code not in codes:
            self.scene.record.blame(f"{self.name} was refused with {error!r}")
