"""The gateways of simulated nodes, and the programs that use them, as a plan says."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from reknit.config import AmqpSettings, HttpSettings
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.plans.plan import FabricPlan
from reknit.testing.fabric.programs.amqp.client import is_available
from reknit.testing.fabric.programs.amqp.echo import AmqpEchoProgram
from reknit.testing.fabric.programs.amqp.links import AmqpReceivingProgram, AmqpSendingProgram
from reknit.testing.fabric.programs.amqp.visitors import (
    LINKS_MAX,
    MESSAGE_BYTES_MAX,
    RELAY_TOPICS_MAX,
    AmqpVisitingProgram,
)
from reknit.testing.fabric.programs.hostile import HostileProgram
from reknit.testing.fabric.programs.program import Program, Scene
from reknit.testing.fabric.programs.web.posters import ADDRESS_TOPIC, PostingProgram
from reknit.testing.fabric.programs.web.tunnels import Format, PatternReadingProgram, TunnelProgram
from reknit.testing.fabric.programs.web.visited_pages import GOOD_SITE, REQUEST_BYTES_MAX
from reknit.testing.fabric.programs.web.visitors import TUNNELS_MAX, VisitingProgram

POSTED: Final = ("web/a", "web/b", "plant/a", ADDRESS_TOPIC)
FORMATS: Final[tuple[Format, ...]] = ("sse", "json", "binary")
HERE: Final = "0.0.0.0:0"
"""Each node puts its own address there."""

VISITED: Final[dict[str, Any]] = {
    "origins": (GOOD_SITE,),
    "request_bytes_max": REQUEST_BYTES_MAX,
    "tunnels_per_address_max": TUNNELS_MAX,
}
VISITED_AMQP: Final[dict[str, Any]] = {
    "message_bytes_max": MESSAGE_BYTES_MAX,
    "links_max": LINKS_MAX,
    "relay_topics_max": RELAY_TOPICS_MAX,
}
"""What visitors expect of a node."""


def settings(plan: FabricPlan, rng: Random) -> dict[str, Any]:
    """The sections of a node's configuration."""
    found: dict[str, Any] = {}
    if plan.posters or plan.tunnels or plan.web_readers or plan.visitors or plan.tenants:
        found["http"] = HttpSettings(
            listen=HERE,
            scheme="kn_route_checkpoint" if rng.random() < plan.checkpoint_share else "kn_event_hash",
            heartbeat_s=1.0,
            tunnel_bytes_max=rng.choice((1 << 10, 1 << 18)),
            stall_s_max=rng.choice((1.0, 30.0)),
            request_timeout_s=5.0,
            stop_timeout_s=0.5,
            **(VISITED if plan.visitors else {}),
        )
    if has_amqp(plan):
        found["amqp"] = AmqpSettings(
            listen=HERE,
            idle_s=4.0,
            hello_timeout_s=2.0,
            stop_timeout_s=0.5,
            credit_events=rng.choice((1, 10, 250)),
            stream_bytes_min=rng.choice((1 << 10, 1 << 20)),
            frame_bytes_max=rng.choice((512, 1 << 14)),
            mechanisms=("ANONYMOUS", "PLAIN") if plan.tenants else ("ANONYMOUS",),
            plain_needs_tls=not plan.tenants,
            **(VISITED_AMQP if plan.amqp_visitors else {}),
        )
    return found


def has_amqp(plan: FabricPlan) -> bool:
    """Whether nodes serve AMQP."""
    return (_needs_amqp(plan) or bool(plan.tenants)) and is_available()


def _needs_amqp(plan: FabricPlan) -> bool:
    return bool(plan.amqp_senders or plan.amqp_receivers or plan.amqp_visitors)


def left_out(plan: FabricPlan) -> tuple[str, ...]:
    """The parts of a plan that this machine can't run."""
    return ("AMQP: proton is not installed",) if _needs_amqp(plan) and not is_available() else ()


def programs(scene: Scene) -> Iterator[Program]:
    """The programs that use gateways. A tunnel brings what is stored at its node, so most readers are at a poster's."""
    plan, rng = scene.plan, scene.fabric.rng("gateway programs")
    nodes = list(scene.fabric.nodes.values())
    posters = [
        PostingProgram(scene, f"post{at}", rng.choice(nodes), rng.choice(POSTED))
        for at in range(plan.posters)
    ]
    yield from posters
    places = [(poster.node, poster.topic) for poster in posters] or [(rng.choice(nodes), "plant/a")]
    for at in range(plan.tunnels):
        node, topic = rng.choice(places)
        topic = rng.choice((topic, topic, "plant/a"))
        yield TunnelProgram(scene, f"tunnel{at}", node, topic, _is_strict(node))
    for at in range(plan.web_readers):
        node, topic = rng.choice(places)
        pattern = rng.choice((topic, "**", "plant/**"))
        yield PatternReadingProgram(scene, f"web{at}", node, pattern, rng.choice(FORMATS))
    for at in range(plan.visitors):
        yield VisitingProgram(scene, f"visitor{at}", rng.choice(nodes))
    if has_amqp(plan):
        yield from _amqp_programs(scene, nodes, rng)
    for at in range(plan.hostiles):
        yield HostileProgram(scene, f"evil{at}", rng.choice(nodes))


def _amqp_programs(scene: Scene, nodes: list[FabricNode], rng: Random) -> Iterator[Program]:
    for at in range(scene.plan.amqp_receivers):
        pattern = rng.choice(("jobs/**", "jobs/x", "plant/**", "plant/b"))
        is_durable = not pattern.startswith("jobs/") and rng.random() < 0.7
        yield AmqpReceivingProgram(scene, f"ar{at}", rng.choice(nodes), pattern, is_durable)
    for at in range(scene.plan.amqp_senders):
        topic = rng.choice(("jobs/x", "plant/b"))
        yield AmqpSendingProgram(scene, f"as{at}", rng.choice(nodes), topic, topic == "jobs/x")
    for at in range(scene.plan.amqp_visitors):
        yield AmqpVisitingProgram(scene, f"av{at}", rng.choice(nodes))
    if scene.plan.amqp_senders > 1:
        yield AmqpEchoProgram(scene, "echo", rng.choice(nodes))


def _is_strict(node: FabricNode) -> bool:
    return node.config.http.scheme == "kn_route_checkpoint"
