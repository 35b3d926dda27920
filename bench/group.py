"""A group of three on one host, one of them sending events of 1,000 bytes: events a second at every member.

python -m bench.group                    loopback, no loss
python -m bench.group --veth --loss 10   three network namespaces, 10 of 1,000 packets dropped (needs root)
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from typing import Any

import uvloop

from reknit.client.group import Group
from reknit.protocol.group_settings import GroupSettings
from reknit.transport.udp import UdpConfig
from tests.groups.namespaces import Namespaces

JGROUPS_BEST_PER_S = 104_000
"""JGroups NAKACK4's best per node on one host: 3 members, 1,000 B, UDP (measured on this kind of machine)."""


async def receive(group: Group, wanted: int, size: int) -> dict[str, Any]:
    """Read until the last event, checking every one."""
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
    rates = {"events": count, "per_s": round(count / took), "cpu_us_per_event": round(cpu_us, 2)}
    return rates | group.counts


async def complete(group: Group, members: int) -> None:
    """Wait until all members are there, and have told each other where they start."""
    is_complete = asyncio.Event()
    group.on_view = lambda view: is_complete.set() if len(view.members) == members else None
    if len(group.members) < members:
        await is_complete.wait()
    await asyncio.sleep(0.3)


async def member(args: argparse.Namespace) -> None:
    settings = GroupSettings(capacity_events=args.capacity, window_bytes=args.window, discover_s=0.3)
    udp = UdpConfig(group=args.group, interface=args.interface)
    async with Group.join("bench", udp=udp, settings=settings) as group:
        for warning in group.warnings:
            sys.stderr.write(f"{warning}\n")
        await complete(group, args.members)
        reading = asyncio.create_task(receive(group, args.events, args.size))
        if args.is_sender:
            payload = os.urandom(args.size)
            for _ in range(args.events):
                await group.send(payload)
        result = await reading
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()
        if not args.is_sender:
            await asyncio.sleep(0.3)


def run(args: argparse.Namespace, lan: Namespaces | None = None) -> list[dict[str, Any]]:
    """Start the members as processes of their own and collect what they say."""
    processes = []
    for number in range(args.members):
        interface = args.interface if lan is None else lan.addresses[number]
        command = [sys.executable, "-m", "bench.group", "--member", "--interface", interface]
        if lan is not None:
            command = lan.command(number, *command)
        command += ["--events", str(args.events), "--size", str(args.size), "--group", args.group]
        command += ["--capacity", str(args.capacity), "--window", str(args.window)]
        command += ["--members", str(args.members)] + (["--sender"] if number == 0 else [])
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    try:
        return [json.loads(process.communicate(timeout=args.timeout)[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--size", type=int, default=1_000)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--capacity", type=int, default=GroupSettings().capacity_events)
    parser.add_argument("--window", type=int, default=GroupSettings().window_bytes)
    parser.add_argument("--group", default="239.75.78.85:7476")
    parser.add_argument("--interface", default="127.0.0.1")
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--veth", action="store_true", help="in network namespaces of 1,500 B packets")
    parser.add_argument("--loss", type=float, default=0.0, help="of 1,000 packets, with --veth")
    parser.add_argument("--member", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--sender", dest="is_sender", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def measure(args: argparse.Namespace) -> tuple[int, list[dict[str, Any]]]:
    """Events a second at the slowest member, and what each member said."""
    if args.veth:
        with Namespaces(args.members, args.loss) as lan:
            results = run(args, lan)
            results[0]["packets_dropped"] = lan.dropped()
    else:
        results = run(args)
    return min(result["per_s"] for result in results), results


def main() -> None:
    args = parse()
    if args.member:
        uvloop.run(member(args))
        return
    rate, results = measure(args)
    for result in results:
        sys.stdout.write(f"{json.dumps(result)}\n")
    ratio = rate / JGROUPS_BEST_PER_S
    sys.stdout.write(f"{rate:,} events/s at every member: {ratio:.1f}x JGroups' best on one host\n")


if __name__ == "__main__":
    main()
