"""Admin requests over the node's own protocol: every question and order, with arguments that are odd."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

import msgspec

from reknit.frame import KIND_MESSAGE, wrap
from reknit.testing.fuzz.inputs import Step
from reknit.testing.fuzz.mutations import FLOATS, NUMBERS, mutate_text, mutate_value
from reknit.testing.fuzz.targets.target import PortTarget, conversation
from reknit.wire.codec import encode
from reknit.wire.messages import VERSION, Ask, Hello

ASK: Final = Ask.__struct_config__.tag
SOURCE: Final = bytes([0x5E]) * 16
NOWHERE: Final = "tcp://127.0.0.1:1"
RANGE: Final = ("position", "stop", "start", "step", "origin", "bytes_max", "events_max", "time_us", "seq")
PAGE: Final = ("limit", "offset", "after", "before", "order", "topic", "subscriber", "name")
KNOWN: Final[dict[str, Sequence[str]]] = {
    "status": (), "summary": (), "topics": (), "config": (), "links": (), "paused": (), "routes": (), "anycast": (),
    "streams": (), "queues": (), "ledger": ("after", "topic", "subscriber", "unbalanced", "limit", "name"),
    "ledger_page": PAGE, "topics_page": PAGE, "subscribers_page": PAGE, "losses": PAGE, "owners": PAGE,
    "dead_letters": ("wanted", *PAGE), "redrive": ("wanted", "stop", "is_dry", "clears_ttl", "ttl_ms", *PAGE),
    "drop_dead_letters": ("wanted", "stop", "is_dry", *PAGE), "fate": ("topic", "source", "seq"),
    "find": ("topic", "raw", *RANGE), "read": RANGE, "records": RANGE, "index": RANGE, "span": RANGE,
    "checkpoint": ("pattern",), "pause": ("pattern",), "resume": ("pattern",), "trail": ("source", "seq"),
    "scheduled": ("pattern", "limit", "after"),
    "cancel": ("pattern", "ids"),
    "own": ("source", "subscriber", "owner"), "skip": ("topic", "source", "start", "stop"), "vias": ("sources",),
    "align": ("topic", "level", "span", "all", "spans"), "link_add": ("url",), "link_remove": ("url", "name"),
    "route_add": ("pattern", "url", "name"), "route_delete": ("pattern", "url", "name"), "weather": ("x",),
    "pipelines": (), "metrics": (), "clients": PAGE, "end_connection": ("connection",), "log_tail": ("limit",),
    "audit_tail": ("limit",), "story": ("topic", "source", "seq", "position"),
    "sources_page": ("topic", "source", "start", "stop", "limit", "offset"),
    "search": ("topic", "text", "key", "header", "id", "since_us", "until_us", "place", "limit"),
    "pipeline": ("id", "lake", "stage", "lag_bytes", "events_s", "away", "settled"),
}  # fmt: skip
"""By request: arguments that it has, and a few that it has not."""
VALUES: Final[dict[str, Sequence[Any]]] = {
    "topic": ("evil/x", "evil/**", "group/evil", "//", "canary/beat"),
    "pattern": ("evil/**", "evil/x", "//", ""),
    "source": (SOURCE.hex(), "xyz", "", SOURCE),
    "raw": (SOURCE, b"", SOURCE[:3]),
    "sources": ([SOURCE], [], [b"x"], SOURCE),
    "name": ("evil", ""),
    "subscriber": ("evil", "", "nobody"),
    "owner": ("evil", "", "two words"),
    "url": (NOWHERE, "", "x://"),
    "order": ("trouble", "topic", "worst", ""),
    "wanted": ({}, {"topic": "evil/**"}, {"reason": "expired", "code": "INTERNAL"}, {"x": 1}),
    "away": ([], ["evil"]),
    "spans": ([], [[0, 1]]),
    "ids": ([], ["x"], [f"{SOURCE.hex()}:1"], "x", [[]]),
    "after": (0, "", [0, 0], [1 << 70], ["x", "y"], SOURCE.hex()),
}
FIRST: Final = encode(Hello(VERSION, "evil"))


class AdminTarget(PortTarget):
    """Operators' programs that ask for what nobody can answer."""

    name = "admin"
    port = "tcp"

    def make(self, rng: Random) -> tuple[Step, ...]:
        asks = [(_ask(rng, number), True) for number in range(rng.choice((1, 2, 5, 40)))]
        return conversation(rng, [(FIRST, True), *asks])


def _ask(rng: Random, number: int) -> bytes:
    what = rng.choice(list(KNOWN))
    names = list(KNOWN[what])
    chosen = rng.sample(names, rng.randint(0, len(names)) if rng.random() < 0.4 else len(names))
    args: Any = {"source" if name == "raw" else name: _value(rng, name) for name in chosen}
    if rng.random() < 0.2:
        args = mutate_value(rng, args)
    try:
        return wrap(KIND_MESSAGE, msgspec.msgpack.encode([ASK, number, what, args]))
    except (OverflowError, ValueError, TypeError):  # msgpack has no such value
        return wrap(KIND_MESSAGE, msgspec.msgpack.encode([ASK, number, what, {}]))


def _value(rng: Random, name: str) -> Any:
    known = VALUES.get(name)
    if known is not None and rng.random() < 0.8:
        value = rng.choice(known)
        return mutate_text(rng, value) if isinstance(value, str) and rng.random() < 0.2 else value
    return rng.choice((*NUMBERS, *FLOATS[:4], 0, 1, 7, 100, 8, True, "x", None))
