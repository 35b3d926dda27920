"""mod_pubsub's form of an event: named elements, some of which are for one hop only.

Besides those of the application there are `kn_payload`, `kn_id`, `kn_time_t`, `kn_expires`, `content-type`, `deleted`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final

PAYLOAD: Final = "kn_payload"
ID: Final = "kn_id"
TIME: Final = "kn_time_t"
EXPIRES: Final = "kn_expires"
HASH: Final = "kn_event_hash"
LOCATION: Final = "kn_route_location"
CHECKPOINT: Final = "kn_route_checkpoint"
ROUTED_FROM: Final = "kn_routed_from"
SCHEME: Final = "kn_journal_reconnect_scheme"
TIMEOUT: Final = "kn_journal_reconnect_timeout"
HEARTBEAT: Final = "kn_heartbeat_s"
"""In a status event: how long a tunnel is quiet before it gets a heartbeat. Not of mod_pubsub."""
STATUS: Final = "status"

CONTROL: Final = frozenset(
    ("do_method", "kn_from", "kn_to", "kn_status_from", "kn_status_to", "kn_response_format", "kn_batch")
)
"""Parameters of a request that are not part of the event."""
ROUTE: Final = frozenset(("do_max_age", "do_max_n", "do_since_checkpoint", "kn_content_filter"))
"""Parameters of a route."""
REFUSED: Final = {
    "kn_content_filter": "a client's regular expression is not run here: filter where you read, or use more topics",
    "kn_content_transform": "events are not sent to another server to be changed: do it where you read",
}
"""Parameters of a route that would change which events arrive, or how. Ignoring them would mislead the client."""


def refusal(names: Iterable[str]) -> str:
    """Why a route with these parameters is refused, or an empty text.

    >>> refusal(["kn_from", "kn_content_transform"])
    'kn_content_transform: events are not sent to another server to be changed: do it where you read'
    """
    return next((f"{name}: {REFUSED[name]}" for name in names if name in REFUSED), "")


def is_hop_by_hop(name: str) -> bool:
    """Whether an element is for one hop: kn_routed_from and every header with a kn_route_ prefix, and no others.

    >>> is_hop_by_hop("kn_route_location"), is_hop_by_hop("kn_routed_from"), is_hop_by_hop("kn_route")
    (True, True, False)
    """
    return name == ROUTED_FROM or name.startswith("kn_route_")


def fingerprint(elements: Mapping[str, bytes]) -> str:
    """The `kn_event_hash`: over all non-hop-by-hop headers, as netstrings sorted by the name's UTF-8.

    >>> fingerprint({"kn_id": b"m1", "kn_payload": b"first", "kn_time_t": b"1794768337"})
    'df902d51cda0f80f4a40a82e0568caf439ffc90bd1ed87630f1a48766f3b7a23'
    """
    hashed = sorted(
        (name.encode(), value)
        for name, value in elements.items()
        if not (is_hop_by_hop(name) or name == HASH)
    )
    parts: list[bytes] = []
    for name, value in hashed:
        parts += (b"%d:" % len(name), name, b",%d:" % len(value), value, b",")
    return sha256(b"".join(parts)).hexdigest()


def seen_key(location: str, event_hash: str) -> str:
    """How a delivered event is remembered: "<kn_route_location value> <kn_event_hash value>".

    >>> seen_key("", "df90")
    ' df90'
    """
    return f"{location} {event_hash}"
