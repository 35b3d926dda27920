"""The node that is attacked: a process of its own, with rules and tokens, and its admin who sees what happened."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import reknit
from reknit.client.session import Session
from reknit.errors import NotConnected
from reknit.processes.process import NodeProcess, free_port
from reknit.testing.attack.credentials import ANN, BOB, LATE, LOCAL, ROOT, STRANGER
from reknit.trust.rules import ANONYMOUS
from reknit.trust.token_file import add_token, remove_token
from reknit.trust.tokens import Token, digest_of, make_secret

RULES: Final = (
    f"{ANN} publish plant/**",
    f"{ANN} subscribe plant/**",
    f"{ANN} publish //plant/10/1/FFFF",
    f"{ANN} as //plant/10/1/FFFF",
    f"{BOB} publish other/**",
    f"{BOB} subscribe other/**",
    f"{LOCAL} publish local/**",
    f"{ANN} publish lobby/**",
    f"{ANONYMOUS} publish lobby/**",
    f"{ANONYMOUS} subscribe lobby/**",
    f"{ROOT} publish **",
    f"{ROOT} subscribe **",
    f"{ROOT} admin",
)
SECRET: Final = b"for ann alone"
SECRET_TOPIC: Final = "plant/secret"
LOBBY_TOPIC: Final = "lobby/news"


def has(package: str) -> bool:
    """Whether a package that a door needs is installed."""
    return find_spec(package) is not None


if TYPE_CHECKING:
    from reknit.testing.attack.certificates import Certificates


class Target:
    """The node, its doors and its tokens."""

    jwts: dict[str, str]
    """JSON Web Tokens, by name."""
    certificates: Certificates
    endpoint: str
    """Where Zenoh sessions connect."""

    def __init__(self, folder: Path) -> None:
        self.secrets = {name: make_secret() for name in (ANN, BOB, ROOT, LATE)}
        self._tokens = str(folder / "tokens")
        for name, secret in self.secrets.items():
            identity, expires_us = (ANN, 1_000_000) if name == LATE else (name, 0)
            add_token(self._tokens, Token(name, identity, digest_of(secret), 0, expires_us))
        self.secrets[STRANGER] = "reknit_" + "A" * 43
        self._identities = [f"unix:{os.getuid()} {LOCAL}"]
        self._issuers: list[str] = []
        self.ports = {"http": free_port(), "metrics": free_port()}
        self.urls = {"unix": f"unix://{folder}/socket"}
        settings = self._optional(folder)
        doors = [text for name, port in self.ports.items() for text in (f"--{name}", f"127.0.0.1:{port}")]
        listen = [text for url in self.urls.values() for text in ("--listen", url)]
        options = [text for one in settings for text in ("--set", one)]
        self._write(folder / "rules.toml")
        self.process = NodeProcess(folder, "--config", f"{folder}/rules.toml", *listen, *doors, *options)
        self.ports["tcp"] = self.process.port
        self.root: Session
        self.ann: Session

    def _optional(self, folder: Path) -> list[str]:
        """Settings for the doors that need a package."""
        settings: list[str] = []
        if has("proton"):
            self.ports["amqp"] = free_port()
            settings += ["amqp.mechanisms=PLAIN,ANONYMOUS", "amqp.plain_needs_tls=false"]
        if has("zenoh"):
            self.endpoint = f"tcp/127.0.0.1:{free_port()}"
            settings.append(f"recovery.zenoh_listen={self.endpoint}")
        if has("joserfc"):
            from reknit.testing.attack.json_web_tokens import make_tokens

            self.jwts, issuer = make_tokens(folder)
            self._issuers.append(issuer)
        if has("cryptography"):
            from reknit.testing.attack import certificates

            self.certificates = made = certificates.Certificates(folder)
            self._identities += certificates.IDENTITIES
            self.urls["tls"] = f"tls://127.0.0.1:{free_port()}"
            node, authority = made.file(certificates.NODE), made.file(certificates.TRUSTED)
            files = {"cert": node, "key": node, "ca": authority}
            settings += [f"transport.tls_{name}_file={file}" for name, file in files.items()]
        return settings

    def _write(self, path: Path) -> None:
        """The settings about trust."""
        lists = {"allow": RULES, "identities": self._identities, "jwt": self._issuers}
        lines = [f"{name} = {json.dumps(list(rows))}" for name, rows in lists.items()]
        path.write_text("\n".join(["[security]", f"tokens_file = {json.dumps(self._tokens)}", *lines, ""]))

    @property
    def url(self) -> str:
        return self.process.url

    async def say_secret(self) -> None:
        """Ann publishes what only she may read."""
        await self.ann.publish(SECRET_TOPIC, SECRET)

    async def say_openly(self) -> None:
        """Ann publishes what everybody may read."""
        await self.ann.publish(LOBBY_TOPIC, b"for all")

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
