"""Look at a group from outside: list its members without joining it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from reknit import environment
from reknit.client.group.datagrams import GroupTransport
from reknit.client.group.incoming_datagrams import IncomingDatagrams
from reknit.client.group.keys import GroupKeys
from reknit.view import View
from reknit.wire.bundle import Bundler, group_hash
from reknit.wire.groups import GroupAskView, GroupInstall
from reknit.wire.sealed import SEAL_BYTES

ASK_S = 0.2
"""How often the members are asked for their view."""


async def look(
    name: str,
    transport: GroupTransport,
    seeds: Sequence[str] = (),
    wait_s: float = 1.0,
    keys: GroupKeys | None = None,
) -> list[View]:
    """The views of the members: one, or several if the group is divided. The latest comes first."""
    views: dict[int, View] = {}
    group, me = group_hash(name), environment.token_bytes(16)
    seal = None if keys is None else keys.seal(group, me)
    incoming = IncomingDatagrams(name, group, me, seal)

    def on_datagram(data: bytes | memoryview, address: tuple[str, int]) -> None:
        read = incoming.read(data, address)
        for item in read[1] if read is not None else ():
            if isinstance(item, GroupInstall):
                known = views.get(item.view.fingerprint)
                if known is None or known.key < item.view.key:
                    views[item.view.fingerprint] = item.view

    await transport.listen()
    await transport.open(on_datagram, lambda: None)
    transport.set_peers(seeds)
    bundler = Bundler(group, me, transport.datagram_bytes - (0 if seal is None else SEAL_BYTES))
    try:
        for _ in range(max(1, round(wait_s / ASK_S))):
            bundler.add(GroupAskView())
            question = bundler.take_parts(0)
            if seal is not None:
                question = seal.seal(question)
            transport.send_all(question)
            for seed in seeds:
                transport.send(question, seed)
            await asyncio.sleep(ASK_S)
    finally:
        await transport.close()
    latest = sorted(views.values(), key=lambda view: view.key, reverse=True)
    return [view for at, view in enumerate(latest) if not _is_outdated(view, latest[:at])]


def _is_outdated(view: View, later: list[View]) -> bool:
    """True if its members are all in a later view."""
    return any(set(view.ids) <= set(other.ids) for other in later)
