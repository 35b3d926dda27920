"""One member of the group that `bench.group` measures, as a process: sends or reads, and prints its figures."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from typing import Any

import uvloop

from reknit.client.group.group import Group
from reknit.protocol.multicast.settings import GroupSettings
from reknit.transport.udp import UdpConfig


async def receive(group: Group, wanted: int, size: int) -> dict[str, Any]:
    """Read and check single events until the last one."""
    count, following, began, cpu_began = 0, 1, 0.0, time.process_time()
    async for event in group:
        if not count:
            began = time.perf_counter()
        assert event.seq == following, f"out of order: {event.seq}, not {following}"
        assert len(event.payload) == size
        following += 1
        count += 1
        if count == wanted:
            break
    took = time.perf_counter() - began
    cpu_us = (time.process_time() - cpu_began) / count * 1e6
    return {"per_s": round(count / took), "cpu_us": round(cpu_us, 2)} | group.counts


async def complete(group: Group, members: int) -> None:
    """Wait until all members have joined and know each other's first seq."""
    is_complete = asyncio.Event()
    group.on_view = lambda view: is_complete.set() if len(view.members) == members else None
    if len(group.members) < members:
        await is_complete.wait()
    await asyncio.sleep(0.3)


async def member(args: argparse.Namespace) -> None:
    settings = GroupSettings(discover_s=0.3)
    udp = UdpConfig(group=args.group, interface=args.interface)
    async with Group.join("bench", udp=udp, settings=settings, key_file=args.key_file) as group:
        for warning in group.warnings:
            sys.stderr.write(f"{warning}\n")
        await complete(group, args.members)
        reading = asyncio.create_task(receive(group, args.events, args.size))
        if args.is_sender:
            payload = os.urandom(args.size)
            for _ in range(args.events):
                await group.send(payload)
        sys.stdout.write(json.dumps(await reading) + "\n")
        sys.stdout.flush()
        if not args.is_sender:
            await asyncio.sleep(0.3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--members", type=int, required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--interface", required=True)
    parser.add_argument("--key-file", default="")
    parser.add_argument("--sender", dest="is_sender", action="store_true")
    uvloop.run(member(parser.parse_args()))


if __name__ == "__main__":
    main()
