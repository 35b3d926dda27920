"""The rules of a plan as a node's configuration: order, attempts, leases, ttl, queues and retention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reknit.config import Config, RetentionSettings, TopicSettings
from reknit.testing.fabric.plans.plan import FabricPlan
from reknit.topic import Pattern

ORDERED_ATTEMPTS_MAX = 20
"""On an ordered topic the attempts have a limit, as one event blocks the others."""


def with_rules(config: Config, plan: FabricPlan) -> Config:
    """The configuration with everything that a plan says about dispatch and retention."""
    ordered: dict[str, Any] = {"order": plan.order, "attempts_max": plan.attempts_max or ORDERED_ATTEMPTS_MAX}
    return replace(
        config,
        dispatch=replace(config.dispatch, attempts_max=plan.attempts_max, lease_s=plan.lease_s),
        limits=replace(config.limits, queue_events_max=plan.queue_events_max),
        retention=config.retention if config.http.listen or config.amqp.listen else _retention(plan),
        topics=(
            *config.topics,
            TopicSettings(pattern=Pattern("film/*"), distribution="balanced"),
            TopicSettings(pattern=Pattern("plant/a"), overflow=plan.overflow, **ordered),
            TopicSettings(pattern=Pattern("plant/**"), **ordered),
            TopicSettings(pattern=Pattern("car/*"), ttl_ms=plan.ttl_ms),
        ),
    )


def _retention(plan: FabricPlan) -> RetentionSettings:
    """Not on nodes with gateways: a tunnel resumes within its grace period, and AMQP has no word for a loss."""
    return RetentionSettings(
        count_max=plan.retain_events_max,
        bytes_max=plan.retain_bytes_max,
        age_s_max=plan.retain_s_max,
        protect_unsettled=plan.protects_unsettled,
    )


def protects_owed(plan: FabricPlan) -> bool:
    """Whether neither retention nor damage removes anything that a durable subscriber is owed.

    A node protects what its own subscribers are owed. Those of others have to get an event before retention takes it.
    """
    has_retention = plan.retain_events_max or plan.retain_bytes_max or plan.retain_s_max
    is_kept = not has_retention or (plan.protects_unsettled and plan.nodes == 1)
    return is_kept and not plan.flip_share


def feeds_owe(plan: FabricPlan) -> bool:
    """Whether every event reaches the nodes beside the fabric: an aligned node gets what the other one still holds."""
    has_retention = plan.retain_events_max or plan.retain_bytes_max or plan.retain_s_max
    return "align" not in plan.feeds or not has_retention
