"""A check while a fabric runs: what identities have is within their quotas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from reknit.testing.fabric.identities import tenants
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.programs.program import Scene


def names_of(node: FabricNode, identity: str) -> list[str]:
    """The durable subscribers that an identity owns on a node."""
    return [name for name, one in node.node.journal.ledger.accounts.items() if one.owner == identity]


def identities_keep_their_quotas(scene: Scene) -> Iterator[str]:
    """No identity has more connections to a node, or more durable subscribers there, than its quota allows."""
    plan = scene.plan
    for node in scene.fabric.nodes.values() if plan.tenants else ():
        if not node.is_up:
            continue
        counts = Counter(peer.identity for peer in node.node.peers if peer.is_welcome and not peer.is_leaving)
        for name in tenants(plan):
            if counts[name] > plan.quota_connections:
                yield f"{name} has {counts[name]} connections to {node.name}"
            if len(held := names_of(node, name)) > plan.quota_names:
                yield f"{name} has the durable subscribers {held} on {node.name}"
