"""What must hold when a fabric is at rest: nodes forgot what is done, routes are back in time, no ttl ended early."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from reknit.outcome import Reason
from reknit.protocol.queues.shared_queue import SharedQueue
from reknit.testing.checks.rest import CORE_EMPTY, QUEUE_EMPTY, value_at
from reknit.testing.fabric.programs.program import Scene

CONVERGE_S: Final = 10.0
"""How long routes may take to be back when everything is healed and runs: connections are tried again, and time out."""
MEMBER_EMPTY: Final = ("held._by_series", "events", "bytes")
"""What a member of a queue has none of at rest."""
FLOW_EMPTY: Final = ("_sent._unacked", "_sent.bytes")
"""What the events to a neighbour have none of at rest."""


def nodes_forget(scene: Scene) -> Iterator[str]:
    """The memory of every node's machines returns to its resting size.

    Not with hostile peers: they stay, and leave things open.
    """
    for node in scene.fabric.nodes.values() if not scene.plan.hostiles else ():
        core = node.node.core
        yield from _left(node.name, core, CORE_EMPTY)
        for queue in core.dispatch.queues.values():
            yield from _left(f"{node.name}'s queue {queue.key}", queue, QUEUE_EMPTY)
            for member in queue.members.values() if isinstance(queue, SharedQueue) else ():
                yield from _left(f"{node.name}'s member {member.key}", member, MEMBER_EMPTY)
        for name, flow in node.node.links.machine.outgoing.items():
            yield from _left(f"{node.name}'s events to {name}", flow, FLOW_EMPTY)


def _left(name: str, root: object, paths: tuple[str, ...]) -> Iterator[str]:
    for path in paths:
        if value := value_at(root, path):
            yield f"{name} is at rest with {path} = {str(value)[:200]}"


def routes_converge(scene: Scene) -> Iterator[str]:
    """Every node reaches every other one soon after the faults are over."""
    took_s = scene.linked_at - scene.calm_at
    if took_s > CONVERGE_S:
        yield f"after {took_s:.1f} s the nodes reached each other again"


def no_ttl_ends_early(scene: Scene) -> Iterator[str]:
    """An event is a dead letter for its ttl only once that is over, by the clock of the node."""
    if scene.plan.step_rate or scene.plan.drift_max:
        return  # the clocks of the publisher and the node differ
    for node in scene.fabric.nodes.values():
        scene.record.read_letters(node)
    for letter in scene.record.letters.values():
        if letter.reason == Reason.EXPIRED and letter.ttl_ms:
            early_us = letter.time_us + letter.ttl_ms * 1000 - letter.died_us
            if early_us > 0:
                yield f"{letter.subscriber}: {letter.id} on {letter.topic} expired {early_us} us too early"


REST_CHECKS: Final = (nodes_forget, routes_converge, no_ttl_ends_early)
