"""What must hold for identities, with quotas and with tokens; see `reknit.testing.fabric.checks.events`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from reknit.protocol.publish.rate_quotas import DEBT_S
from reknit.testing.fabric.identities import tenants
from reknit.testing.fabric.programs.program import Scene
from reknit.testing.fabric.programs.tenants.guests import revoked_tokens_are_worthless
from reknit.testing.fabric.programs.tenants.held_quotas import identities_keep_their_quotas

BURST_S: Final = 1.0
"""So many seconds' worth may be published at once."""


def rates_are_kept(scene: Scene) -> Iterator[str]:
    """An identity publishes a second's worth of its quota at once and a debt that it pays by waiting, and no more."""
    plan = scene.plan
    starts = sum(node.starts for node in scene.fabric.nodes.values())
    for name in tenants(plan):
        stored = [sent for sent in scene.record.sent.values() if sent.publisher == name and sent.is_stored]
        if not stored:
            yield f"{name} never published anything"
            continue
        took_s = max(sent.stored_at for sent in stored) - min(sent.put_at for sent in stored)
        allowed = plan.quota_events_per_s * (took_s + starts * (BURST_S + DEBT_S)) + starts * plan.burst_max
        if len(stored) > allowed:
            yield f"{name} published {len(stored)} events in {took_s:.1f} s, and {allowed:.0f} are allowed"


QUOTA_CHECKS: Final = (identities_keep_their_quotas, rates_are_kept, revoked_tokens_are_worthless)
