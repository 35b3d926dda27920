"""The gateways of simulated nodes, and the programs that use them, as a plan says."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from reknit.config import HttpSettings
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.plan import FabricPlan
from reknit.testing.fabric.programs.posters import ADDRESS_TOPIC, PostingProgram
from reknit.testing.fabric.programs.program import Program, Scene
from reknit.testing.fabric.programs.tunnels import Format, PatternReadingProgram, TunnelProgram

POSTED: Final = ("web/a", "web/b", "plant/a", ADDRESS_TOPIC)
FORMATS: Final[tuple[Format, ...]] = ("sse", "json", "binary")
HERE: Final = "0.0.0.0:0"
"""Each node puts its own address there."""


def settings(plan: FabricPlan, rng: Random) -> dict[str, Any]:
    """The sections of a node's configuration."""
    found: dict[str, Any] = {}
    if plan.posters or plan.tunnels or plan.web_readers:
        found["http"] = HttpSettings(
            listen=HERE,
            scheme="kn_route_checkpoint" if rng.random() < plan.checkpoint_share else "kn_event_hash",
            heartbeat_s=1.0,
            tunnel_bytes_max=rng.choice((1 << 10, 1 << 18)),
            stall_s_max=rng.choice((1.0, 30.0)),
            request_timeout_s=5.0,
            stop_timeout_s=0.5,
        )
    return found


def programs(scene: Scene) -> Iterator[Program]:
    """The programs that use gateways. A tunnel brings what is stored at its node, so most readers are at a poster's."""
    plan, rng = scene.plan, scene.fabric.rng("gateway programs")
    nodes = list(scene.fabric.nodes.values())
    posters = [
        PostingProgram(scene, f"post{at}", rng.choice(nodes), rng.choice(POSTED))
        for at in range(plan.posters)
    ]
    yield from posters
    for at in range(plan.tunnels):
        poster = rng.choice(posters)
        topic = rng.choice((poster.topic, poster.topic, "plant/a"))
        yield TunnelProgram(scene, f"tunnel{at}", poster.node, topic, _is_strict(poster.node))
    for at in range(plan.web_readers):
        poster = rng.choice(posters)
        pattern = rng.choice((poster.topic, "**", "plant/**"))
        yield PatternReadingProgram(scene, f"web{at}", poster.node, pattern, rng.choice(FORMATS))


def _is_strict(node: FabricNode) -> bool:
    return node.config.http.scheme == "kn_route_checkpoint"
