"""Certificates and authorities of a node change under load: only clients of a dropped authority are disconnected."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from reknit.client.session import Session, connect
from reknit.config import Config, load
from reknit.errors import ReknitError
from reknit.processes.process import NodeProcess, ending
from tests.certificates import Certificates
from tests.node.node_processes import run, until
from tests.real.load import Load

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

RULES = '[security]\nallow = ["ann publish plant/**", "bob subscribe plant/**", "pal subscribe **", "root admin"]\n'
ROUNDS = 3


class Rig:
    """A node that trusts two authorities, and its files."""

    def __init__(self, folder: Path) -> None:
        self.made = made = Certificates(folder)
        made.authority("partner")
        for name in ("node", "ann", "bob", "root"):
            made.make(name)
        made.make("pal", by="partner")
        self.trust("ca", "partner")
        (folder / "rules.toml").write_text(RULES)
        self.node = NodeProcess(
            folder, "--config", str(folder / "rules.toml"), *made.settings("node", "trusted")
        )
        plain, self.node.url = self.node.url, self.node.url.replace("tcp:", "tls:")
        self.node.command[self.node.command.index(plain)] = self.node.url

    def trust(self, *names: str) -> None:
        """Let the node trust these authorities, all at once."""
        draft = self.made.folder / "draft"
        draft.write_text("".join(self.made.pem(name).read_text() for name in names))
        os.replace(draft, self.made.pem("trusted"))

    def config(self, name: str) -> Config:
        files = {"ca_file": "ca", "client_cert_file": name}
        given = {f"transport.tls_{key}": str(self.made.pem(one)) for key, one in files.items()}
        return load(
            environ={}, overrides={**given, "transport.tls_client_key_file": str(self.made.key(name))}
        )

    def connect(self, name: str, wait_s: float = 30.0) -> Session:
        return connect(self.node.url, name=name, config=self.config(name), wait_s=wait_s)

    async def addresses(self) -> dict[str, str]:
        """From where everybody else is connected."""
        async with self.connect("root") as root:
            peers = (await root.status())["peers"]
        return {row["name"]: row["address"] for row in peers if row["name"] != "root"}

    async def can(self, name: str) -> bool:
        """Whether somebody is let in now."""
        try:
            async with self.connect(name, 0.0):
                return True
        except ReknitError:
            return False

    def served(self) -> str:
        return ssl.get_server_certificate(("127.0.0.1", self.node.port))

    def said(self) -> int:
        """How often the node has said that it read its certificates again."""
        return self.node.output().count("the certificate for tls:// was reloaded")


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    with ending(made.node):
        made.node.start()
        yield made


def test_only_clients_of_a_dropped_authority_are_disconnected(rig: Rig) -> None:
    flow = Load()

    async def one_round(number: int) -> None:
        before = await rig.addresses()
        with suppress(ReknitError):  # what the node ended can't be left properly
            async with rig.connect("pal") as pal, pal.subscribe("plant/*"):
                await flow.go_on()
                certificate, reloads = rig.served(), rig.said()
                rig.made.make("node")
                await until(lambda: rig.served() != certificate)
                rig.made.renew("ca")
                rig.trust("ca", "partner")
                await until(lambda: rig.said() > reloads)
                await flow.go_on()
                there = await rig.addresses()
                assert {name: there.get(name) for name in before} == before
                assert "pal" in there, "a renewed authority is the same one"
                rig.trust("ca")
                if number % 2:
                    os.kill(rig.node.pid, signal.SIGHUP)  # otherwise the node notices by itself
                await until(lambda: rig.node.output().count("is no longer in") > number)
        await flow.go_on()
        there = await rig.addresses()
        assert {name: there.get(name) for name in before} == before, "no innocent connection was dropped"
        assert not await rig.can("pal")
        rig.trust("ca", "partner")
        await until(lambda: rig.can("pal"))

    async def test() -> None:
        async with rig.connect("ann") as ann, rig.connect("bob") as bob, bob.subscribe("plant/*") as events:
            work = [asyncio.create_task(flow.publish(ann)), asyncio.create_task(flow.receive(events))]
            for number in range(ROUNDS):
                await one_round(number)
            flow.is_over = True
            await work[0]
            await until(lambda: len(flow.received) >= flow.published)
            work[1].cancel()
        assert flow.received == list(range(flow.published)), "no event was lost"

    run(test, 280)
