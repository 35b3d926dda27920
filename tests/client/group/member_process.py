"""One member as a program of its own: sends its events, reads the events of all members, and prints what it received.

It prints "complete" when all members have joined, and sends after a line on its standard input.

python -m tests.client.group.member_process INTERFACE NAME MEMBERS EVENTS
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys

from reknit.client.group.group import Group
from reknit.protocol.multicast.settings import GroupSettings
from reknit.transport.udp import UdpConfig


def payload(name: str, number: int) -> bytes:
    return f"{name}-{number}-".encode() * (1 + number % 40)


def digest_of(name: str, events: int) -> str:
    """The digest of all events of a member, which every member must receive."""
    digest = hashlib.sha256()
    for number in range(events):
        digest.update(payload(name, number))
    return digest.hexdigest()


async def run(interface: str, name: str, members: int, events: int) -> None:
    udp = UdpConfig(group="239.75.78.90:7480", interface=interface)
    settings = GroupSettings(suspect_s=20.0)
    is_complete = asyncio.Event()
    group = Group.join("robots", udp=udp, member=name, settings=settings)
    group.on_view = lambda view: is_complete.set() if len(view.members) == members else None
    async with group:
        await is_complete.wait()
        print("complete", flush=True)
        await asyncio.to_thread(sys.stdin.readline)  # until the view of each member is complete
        sending = asyncio.create_task(group.send_many([payload(name, n) for n in range(events)]))
        digests = {member.name: hashlib.sha256() for member in group.members}
        counts = dict.fromkeys(digests, 0)
        async for event in group:
            source = group.name_of(event.source)
            digests[source].update(event.payload)
            counts[source] += 1
            if all(count == events for count in counts.values()):
                break
        await sending
        report = {source: digest.hexdigest() for source, digest in digests.items()}
        print(json.dumps({"digests": report, "lost": len(group.lost), **group.counts}), flush=True)
        await asyncio.to_thread(sys.stdin.read)  # the others may still need us


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
