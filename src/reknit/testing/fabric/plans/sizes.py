"""Small fabrics: a few kinds of programs at a time, and fewer events, with all the faults of their plans.

Most faults need only two or three programs to show, and a small fabric takes a third of the time of a large one. So
many small fabrics find more than a few large ones. Which programs are left out follows from the seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final

KINDS: Final[dict[str, dict[str, Any]]] = {
    "requests": {"requesters": 0},
    "streams": {"stream_writers": 0},
    "web": {"posters": 0, "tunnels": 0, "web_readers": 0},
    "amqp": {"amqp_senders": 0, "amqp_receivers": 0},
    "replicas": {"feeds": (), "is_ring": False},
    "groups": {"members": 0},
    "caches": {"liars": 0, "recoverers": 0},
    "hostiles": {"hostiles": 0},
    "blocking": {"blocking": 0},
}
"""What there may be besides publishers, subscribers and workers, and the fields that leave it out."""
WEIGHTS: Final = {
    "requests": 1.0,
    "streams": 2.0,
    "web": 2.0,
    "amqp": 2.0,
    "replicas": 4.0,
    "groups": 2.0,
    "caches": 2.0,
    "hostiles": 1.0,
    "blocking": 4.0,
}
"""How readily each kind stays. Replicas are part of the fabric, and requests are in most plans."""
EVENTS_MAX: Final = 160
"""About how many events all publishers of a fabric publish."""
PUT_SHARE: Final = 0.8
"""How often programs do something, compared with a large fabric."""


def small_fields(seed: int, plan: Mapping[str, Any]) -> dict[str, Any]:
    """The fields in which the small fabric of a seed differs from the large one.

    >>> small_fields(7, {"senders": 1, "publishers": 1, "burst_max": 1, "put_rate": 5.0, "run_s": 2.0})
    {'put_rate': 4.0}
    """
    rng = Random(f"size {seed}")
    present = [
        kind
        for kind, absent in KINDS.items()
        if any(plan.get(name, value) != value for name, value in absent.items())
    ]
    present.sort(key=lambda kind: rng.random() ** (1 / WEIGHTS[kind]), reverse=True)
    fields: dict[str, Any] = {}
    for kind in present[rng.choice((1, 1, 2)) :]:
        fields |= KINDS[kind]
    per_put = plan["publishers"] * (1 + plan["burst_max"]) / 2 * plan["run_s"]
    return fields | {"put_rate": min(plan["put_rate"] * PUT_SHARE, max(EVENTS_MAX / per_put, 1.0))}
