"""Identities in a simulated fabric: who has a token, what everybody may do, and how much of a node a tenant may use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reknit.config import SecuritySettings
from reknit.testing.fabric.plans.plan import FabricPlan
from reknit.trust.tokens import Token, digest_of

ANYBODY = ("publish **", "subscribe **", "as //*/FFFFFFFF/FF/FFFF", "admin")
"""What programs without a token may do: everything, as without rules."""
GUEST = "guest"
"""An identity whose token is revoked and given back while the fabric runs. It has no quota."""


def tenants(plan: FabricPlan) -> list[str]:
    """The identities of a plan's tenants."""
    return [f"tenant{at}" for at in range(plan.tenants)]


def secret_of(tenant: str) -> str:
    """The token of a tenant."""
    return f"reknit_{tenant}"


def topics_of(tenant: str) -> str:
    """The pattern of the topics that a tenant may use, and nothing else."""
    return f"tenant/{tenant}/**"


def write_tokens(plan: FabricPlan, folder: Path, has_guest: bool = True) -> Path:
    """Write the file of tokens, with that of the guest or without it."""
    names = [*tenants(plan), *([GUEST] if has_guest else [])]
    tokens = (Token(name, name, digest_of(secret_of(name)), 0, 0) for name in names)
    path = folder / "tokens"
    path.write_text("".join(f"{token.line}\n" for token in tokens))
    path.chmod(0o600)
    return path


def security(plan: FabricPlan, folder: Path) -> dict[str, Any]:
    """The section of a node's configuration, with a file of tokens in the folder; none without tenants."""
    if not plan.tenants:
        return {}
    names = [*tenants(plan), GUEST]
    path = write_tokens(plan, folder)
    rules = [f"{name} {verb} {topics_of(name)}" for name in names for verb in ("publish", "subscribe")]
    quota = (
        f"tenant* events_per_s={plan.quota_events_per_s} connections={plan.quota_connections} "
        f"durable_names={plan.quota_names}"
    )
    allow = (*(f"anonymous {what}" for what in ANYBODY), *rules)
    return {"security": SecuritySettings(tokens_file=str(path), allow=allow, quotas=(quota,))}
