"""Identities in a simulated fabric: who has a token, what everybody may do, and how much of a node a tenant may use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reknit.config import SecuritySettings
from reknit.testing.fabric.plans.plan import FabricPlan
from reknit.trust.tokens import Token, digest_of

ANYBODY = ("publish **", "subscribe **", "as //*/FFFFFFFF/FF/FFFF", "admin")
"""What programs without a token may do: everything, as without rules."""


def tenants(plan: FabricPlan) -> list[str]:
    """The identities of a plan's tenants."""
    return [f"tenant{at}" for at in range(plan.tenants)]


def secret_of(tenant: str) -> str:
    """The token of a tenant."""
    return f"reknit_{tenant}"


def topics_of(tenant: str) -> str:
    """The pattern of the topics that a tenant may use, and nothing else."""
    return f"tenant/{tenant}/**"


def security(plan: FabricPlan, folder: Path) -> dict[str, Any]:
    """The section of a node's configuration, with a file of tokens in the folder; none without tenants."""
    names = tenants(plan)
    if not names:
        return {}
    path = folder / "tokens"
    tokens = (Token(name, name, digest_of(secret_of(name)), 0, 0) for name in names)
    path.write_text("".join(f"{token.line}\n" for token in tokens))
    path.chmod(0o600)
    rules = [f"{name} {verb} {topics_of(name)}" for name in names for verb in ("publish", "subscribe")]
    quota = (
        f"tenant* events_per_s={plan.quota_events_per_s} connections={plan.quota_connections} "
        f"durable_names={plan.quota_names}"
    )
    allow = (*(f"anonymous {what}" for what in ANYBODY), *rules)
    return {"security": SecuritySettings(tokens_file=str(path), allow=allow, quotas=(quota,))}
