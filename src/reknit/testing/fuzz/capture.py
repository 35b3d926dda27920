"""Real conversations, captured in a simulated fabric: what clients and nodes say to each other, turn by turn.

Time, network and randomness are simulated, so every run captures the same bytes, and an input can be made again from
its seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Final

import msgspec

from reknit.frame import peek
from reknit.testing.fabric.fabric import Fabric
from reknit.testing.fabric.nodes import AMQP_PORT, HTTP_PORT, PORT
from reknit.testing.fabric.plans.plan import FabricPlan
from reknit.testing.fabric.run import FabricSimulation
from reknit.testing.fabric.virtual.logs import tracebacks
from reknit.testing.fabric.virtual.network import FIRST_PORT, HostPort

PLAN: Final = FabricPlan(
    seed=12,
    nodes=2,
    run_s=3.0,
    publishers=3,
    durables=2,
    ephemerals=2,
    queue_members=2,
    senders=2,
    workers=2,
    requesters=1,
    services=1,
    release=0.3,
    fail=0.2,
    reject=0.3,
    leave_share=0.5,
    program_crash_rate=0.5,
    pause_rate=0.5,
    redrive_rate=0.5,
    drop_rate=0.3,
    link_rate=0.3,
    feeds=("relay", "push", "align"),
    stream_writers=1,
    stream_readers=2,
    give_up_share=0.3,
    posters=2,
    tunnels=2,
    web_readers=3,
    amqp_senders=2,
    amqp_receivers=2,
)
"""A fabric that uses every message and every gateway. Programs crash and come back, so that some of them resume."""
PARTS_MAX: Final = 400
"""The longest conversation that is remembered."""


class Turn(msgspec.Struct):
    """What a client says without waiting for an answer, part by part, and whether the node answered then."""

    said: list[bytes]
    is_answered: bool = False


class Conversation(msgspec.Struct):
    """One connection: what its client said. `heard` is what the node said, as it came."""

    port: int
    turns: list[Turn]
    heard: list[bytes]

    @property
    def parts(self) -> list[bytes]:
        """Everything that the client said, in order."""
        return [part for turn in self.turns for part in turn.said]


Split = Callable[[bytes], list[bytes]]


class Recorder:
    """Takes note of what is written on each connection to a node."""

    def __init__(self) -> None:
        self._found: dict[HostPort, Conversation] = {}
        self._counts: Counter[HostPort] = Counter()

    def note(self, here: HostPort, there: HostPort, data: bytes) -> None:
        """Bytes were written from one address to another."""
        is_client = here[1] > FIRST_PORT
        client, port = (here, there[1]) if is_client else (there, here[1])
        found = self._found.setdefault(client, Conversation(port, [], []))
        self._counts[client] += 1
        if self._counts[client] > PARTS_MAX:
            return
        if not is_client:
            found.heard.append(data)
            if found.turns:
                found.turns[-1].is_answered = True
        elif not found.turns or found.turns[-1].is_answered:
            found.turns.append(Turn([data]))
        else:
            found.turns[-1].said.append(data)

    def conversations(self, port: int, split: Split) -> list[Conversation]:
        """The conversations on a port, with their bytes split into messages."""
        found = []
        for one in self._found.values():
            if one.port == port and one.turns:
                turns = [Turn(split(b"".join(turn.said)), turn.is_answered) for turn in one.turns]
                found.append(Conversation(port, turns, one.heard))
        return found


@cache
def recorded() -> Recorder:
    """What was captured; the same in every process."""
    recorder = Recorder()
    with Fabric(PLAN.seed) as fabric:
        fabric.network.tap = recorder.note
        with tracebacks(fabric.logged):
            fabric.run(FabricSimulation(fabric, PLAN).run())
    return recorder


def tcp_conversations() -> list[Conversation]:
    """What clients and linked nodes say to a node, frame by frame."""
    return recorded().conversations(PORT, split_frames)


def http_conversations() -> list[Conversation]:
    """What HTTP clients say to a node, write by write."""
    return recorded().conversations(HTTP_PORT, lambda data: [data])


def amqp_conversations() -> list[Conversation]:
    """What AMQP clients say to a node, frame by frame. Empty if proton is not installed."""
    return recorded().conversations(AMQP_PORT, split_amqp)


def split_frames(data: bytes) -> list[bytes]:
    """Whole frames, and what is left."""
    frames, at = [], 0
    while at < len(data):
        kind, length = peek(data, at, len(data) - at)
        end = at + length if kind else len(data)
        frames.append(data[at:end])
        at = end
    return frames


def split_amqp(data: bytes) -> list[bytes]:
    """Protocol headers and frames."""
    parts, at = [], 0
    while at < len(data):
        size = 8 if data[at : at + 4] == b"AMQP" else max(8, int.from_bytes(data[at : at + 4], "big"))
        parts.append(data[at : at + size])
        at += size
    return parts
