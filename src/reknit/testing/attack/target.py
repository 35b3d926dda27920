"""The node that is attacked: a process of its own, with rules and tokens, and its admin who sees what happened."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import reknit
from reknit.client.session import Session
from reknit.errors import NotConnected
from reknit.processes.process import NodeProcess, free_port
from reknit.testing.attack.credentials import ANN, BOB, LATE, ROOT
from reknit.testing.fabric.programs.amqp.client import is_available
from reknit.trust.token_file import add_token, remove_token
from reknit.trust.tokens import Token, digest_of, make_secret

RULES: Final = (
    f"{ANN} publish plant/**",
    f"{ANN} subscribe plant/**",
    f"{ANN} publish //plant/10/1/FFFF",
    f"{ANN} as //plant/10/1/FFFF",
    f"{BOB} publish other/**",
    f"{BOB} subscribe other/**",
    f"{ROOT} publish **",
    f"{ROOT} subscribe **",
    f"{ROOT} admin",
)
SECRET: Final = b"for ann alone"
SECRET_TOPIC: Final = "plant/secret"


class Target:
    """The node, its doors and its tokens."""

    def __init__(self, folder: Path) -> None:
        self.secrets = {name: make_secret() for name in (ANN, BOB, ROOT, LATE)}
        self._tokens = str(folder / "tokens")
        for name, secret in self.secrets.items():
            identity, expires_us = (ANN, 1_000_000) if name == LATE else (name, 0)
            add_token(self._tokens, Token(name, identity, digest_of(secret), 0, expires_us))
        self.ports = {"http": free_port(), "metrics": free_port()}
        settings = [f"security.tokens_file={self._tokens}", f"security.allow={','.join(RULES)}"]
        if is_available():
            self.ports["amqp"] = free_port()
            settings += ["amqp.mechanisms=PLAIN,ANONYMOUS", "amqp.plain_needs_tls=false"]
        doors = [text for name, port in self.ports.items() for text in (f"--{name}", f"127.0.0.1:{port}")]
        self.process = NodeProcess(folder, *doors, *(text for one in settings for text in ("--set", one)))
        self.ports["tcp"] = self.process.port
        self.root: Session
        self.ann: Session

    @property
    def url(self) -> str:
        return self.process.url

    async def say_secret(self) -> None:
        """Ann publishes what only she may read."""
        await self.ann.publish(SECRET_TOPIC, SECRET)

    def revoke(self, name: str) -> None:
        """Revoke a token; the node reads its file again."""
        remove_token(self._tokens, name)

    async def restart(self) -> None:
        """Kill the node, and start it again. Sessions reconnect."""
        self.process.kill()
        await asyncio.to_thread(self.process.start)
        for session in (self.root, self.ann):
            await _answered(session)

    async def has_topic(self, topic: str) -> bool:
        """Whether an event was stored on a topic, or is a moment later."""
        for _ in range(5):
            if any(row["topic"] == topic for row in await self.root.ask("topics")):
                return True
            await asyncio.sleep(0.05)
        return False

    async def figures(self) -> dict[str, Any]:
        """What the node says of itself."""
        return await self.root.status()


async def _answered(session: Session) -> None:
    """Wait until a session is connected again."""
    while True:
        try:
            await session.ask("checkpoint", pattern="plant/**")
            return
        except NotConnected:
            await asyncio.sleep(0.05)


@asynccontextmanager
async def target() -> AsyncIterator[Target]:
    """A node that runs while in this block."""
    folder = Path(tempfile.mkdtemp(prefix="attack-"))
    made = Target(folder)
    try:
        await asyncio.to_thread(made.process.start)
        async with (
            reknit.connect(made.url, token=made.secrets[ROOT]) as made.root,
            reknit.connect(made.url, token=made.secrets[ANN], name="ann's sensor") as made.ann,
        ):
            await made.say_secret()
            yield made
    finally:
        made.process.kill()
        shutil.rmtree(folder, ignore_errors=True)
