"""Small fabrics: a few kinds of programs at a time, and fewer events, with all the faults of their plans.

Most faults need only two or three programs to show, and a small fabric takes a third of the time of a large one. So
many small fabrics find more than a few large ones. Which programs are left out follows from the seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final

KINDS: Final[dict[str, dict[str, Any]]] = {
    "jobs": {"senders": 0},
    "requests": {"requesters": 0},
    "streams": {"stream_writers": 0},
    "web": {"posters": 0, "tunnels": 0, "web_readers": 0},
    "amqp": {"amqp_senders": 0, "amqp_receivers": 0},
    "replicas": {"feeds": (), "is_ring": False},
    "groups": {"members": 0},
    "caches": {"liars": 0, "recoverers": 0},
    "hostiles": {"hostiles": 0},
}
"""What there may be besides publishers and subscribers, and the fields that leave it out."""
EVENTS_MAX: Final = 120
"""About how many events all publishers of a fabric publish."""
PUT_SHARE: Final = 0.6
"""How often programs do something, compared with a large fabric."""


def small_fields(seed: int, plan: Mapping[str, Any]) -> dict[str, Any]:
    """The fields in which the small fabric of a seed differs from the large one.

    >>> small_fields(7, {"senders": 1, "publishers": 1, "burst_max": 1, "put_rate": 5.0, "run_s": 2.0})
    {'put_rate': 3.0}
    """
    rng = Random(f"size {seed}")
    present = [
        kind
        for kind, absent in KINDS.items()
        if any(plan.get(name, value) != value for name, value in absent.items())
    ]
    rng.shuffle(present)
    fields: dict[str, Any] = {}
    for kind in present[rng.choice((1, 1, 2)) :]:
        fields |= KINDS[kind]
    per_put = plan["publishers"] * (1 + plan["burst_max"]) / 2 * plan["run_s"]
    return fields | {"put_rate": min(plan["put_rate"] * PUT_SHARE, max(EVENTS_MAX / per_put, 1.0))}
