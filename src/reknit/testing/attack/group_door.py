"""The door of a group: datagrams from anybody on the network. It is imported only where `cryptography` is installed."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from reknit import environment
from reknit.client.group.group import Group
from reknit.protocol.multicast.settings import GroupSettings
from reknit.testing.attack.actions import PATIENCE_S, Action
from reknit.testing.attack.credentials import ANN, Credential, Visitor
from reknit.testing.attack.happened import Happened
from reknit.testing.attack.target import SECRET, Target
from reknit.transport.udp import UdpConfig

QUICK: Final = GroupSettings(discover_s=0.1, beat_s=0.1)
WITH: Final = (Credential.NONE, Credential.WRONG, Credential.EXPIRED, Credential.RIGHT)
"""A key is the whole group's: there is none of somebody else. One that was removed from the file has expired."""


class Members(NamedTuple):
    """A member with the group's key, and one with what the visitor shows."""

    ann: Group
    mallory: Group

    @property
    def are_together(self) -> bool:
        return len(self.ann.members) == len(self.mallory.members) == 2

    @property
    def refusals(self) -> str:
        """What both refuse of each other."""
        sides = (self.ann, self.mallory)
        counts = [{n: c for n, c in one.counts.items() if n.startswith("refused_")} for one in sides]
        return str(counts) if all(counts) else ""


@asynccontextmanager
async def members(visitor: Visitor, number: int) -> AsyncIterator[Members]:
    """Two that try to be a group, once it is known whether they are one."""
    pid = os.getpid()
    udp = UdpConfig(group=f"239.{128 + (pid >> 16) % 64}.{(pid >> 8) % 256}.{pid % 256}:{21_000 + number}")
    folder = Path(tempfile.mkdtemp(prefix="group-"))
    async with AsyncExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        ours = _key_file(folder / "ours")
        theirs = {Credential.NONE: "", Credential.RIGHT: ours}
        shown = theirs[visitor.credential] if visitor.credential in theirs else _key_file(folder / "theirs")
        groups = [
            await stack.enter_async_context(
                Group.join(f"attack-{number}", udp=udp, member=name, settings=QUICK, key_file=file)
            )
            for name, file in ((ANN, ours), ("mallory", shown))
        ]
        both = Members(*groups)
        async with asyncio.timeout(PATIENCE_S):
            while not both.are_together and not both.refusals:  # noqa: ASYNC110  (there is no one event to wait for)
                await asyncio.sleep(0.02)
        yield both


def _key_file(path: Path) -> str:
    path.write_text(environment.token_hex(32))
    path.chmod(0o600)
    return str(path)


async def _pass(sender: Group, reader: Group) -> None:
    """Send a secret, and raise `Happened` if it arrives."""
    await sender.send(SECRET)
    async with asyncio.timeout(PATIENCE_S):
        async for event in reader:
            if bytes(event.payload) == SECRET:
                raise Happened


async def send(target: Target, visitor: Visitor, number: int) -> str:
    """Send an event to the members."""
    async with members(visitor, number) as both:
        if both.are_together:
            await _pass(both.mallory, both.ann)
        return f"refused: {both.refusals}"


async def read(target: Target, visitor: Visitor, number: int) -> str:
    """Read what a member sends."""
    async with members(visitor, number) as both:
        if both.are_together:
            await _pass(both.ann, both.mallory)
        return f"refused: {both.refusals}"


GROUP: Final = (
    Action("group", "send to its members", ANN, send, "", WITH),
    Action("group", "read what members send", ANN, read, "", WITH),
)
