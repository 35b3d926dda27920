"""The keys and selectors of Zenoh's advanced publishers and subscribers.

    KEY/@adv/pub/ZID/EID/REST         a publisher: its liveliness token, its heartbeats, queries for its cache
    PATTERN/@adv/**                   a query for the history of all publishers
    PATTERN/@adv/*/ZID/EID/**         a query for the history of one
    PATTERN/@adv/sub/ZID/EID/REST     the liveliness token of a subscriber
    @reknit/gateway/NAME              the liveliness token of a gateway

`_sn=A..B` asks for numbers, both ends included, `_max=N` for the newest N, `_time=[now(-Ns)..]` for the newer ones. The
REST of our own publishers is the name of their node, in hex, behind `reknit-`.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from reknit.batch import SEQ_MAX
from reknit.gateway.zenoh.samples import WRAP

ADV: Final = "/@adv/"
DIGITS_MAX: Final = 20
"""Numbers in keys and selectors have 64 bits at most."""
AGE_S_MAX: Final = 1e9
GATEWAYS: Final = "@reknit/gateway"
NODE: Final = "reknit-"
AGE: Final = re.compile(r"\[?now\(-?([0-9.]+)(ms|s|m|h|d|)\)\.\.")
UNITS: Final = {"ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Publisher(msgspec.Struct, frozen=True):
    """A publisher as its key names it."""

    key: str
    zid: str
    eid: str
    rest: str

    @property
    def entity(self) -> int | None:
        """The number of the entity; None if it has none."""
        return int(self.eid) if self.eid.isdecimal() and len(self.eid) <= DIGITS_MAX else None

    @property
    def node(self) -> str:
        """The node of a reknit gateway's publisher; empty for others."""
        return name_of(self.rest.removeprefix(NODE)) if self.rest.startswith(NODE) else ""


def publisher_of(key: str) -> Publisher | None:
    """The publisher that a token, a heartbeat or a query is about; None if the key names none.

    >>> publisher_of("plant/a/@adv/pub/c0ffee/7/_")
    Publisher(key='plant/a', zid='c0ffee', eid='7', rest='_')
    """
    topic, found, entity = key.partition(ADV)
    parts = entity.split("/", 3)
    return Publisher(topic, parts[1], parts[2], parts[3]) if found and len(parts) == 4 else None


def publisher_key(topic: str, zid: str, eid: int, node: str) -> str:
    """The key of one of our publishers."""
    return f"{topic}{ADV}pub/{zid}/{eid}/{NODE}{node.encode().hex()}"


def subscriber_key(pattern: str, zid: str, eid: int, node: str) -> str:
    """The token of one of our subscribers."""
    return f"{pattern}{ADV}sub/{zid}/{eid}/{NODE}{node.encode().hex()}"


def subscriber_of(key: str) -> Publisher | None:
    """The subscriber that a token is about, in the same form; None if the key names none.

    >>> subscriber_of("plant/**/@adv/sub/c0ffee/7/_").key
    'plant/**'
    """
    return publisher_of(key) if f"{ADV}sub/" in key else None


def gateway_key(node: str) -> str:
    """The liveliness token of a gateway.

    >>> gateway_key("edge"), gateway_of(gateway_key("edge")), gateway_of("@reknit/gateway/xyz")
    ('@reknit/gateway/65646765', 'edge', '')
    """
    return f"{GATEWAYS}/{node.encode().hex()}"


def gateway_of(key: str) -> str:
    """The node of a gateway's token; empty if it is none."""
    return name_of(key.removeprefix(GATEWAYS + "/"))


def name_of(text: str) -> str:
    """A node's name from hex; empty if it is none."""
    try:
        return bytes.fromhex(text).decode()
    except ValueError:
        return ""


class Wanted(msgspec.Struct, frozen=True):
    """What a query asks for."""

    pattern: str
    """Of which topics."""
    zid: str
    """Of which source; empty: of all."""
    start: int
    stop: int
    """Of each source the seqs `[start, stop)`, as far as 32 bits tell."""
    newest: int
    """So many of each source; 0: all."""
    age_s: float
    """No older ones; 0: all."""

    @property
    def is_everything(self) -> bool:
        """Whether it gives no numbers."""
        return (self.start, self.stop) == (1, SEQ_MAX)


def wanted(key: str, parameters: str) -> Wanted | None:
    """What an advanced subscriber's query asks for; None if it is not valid.

    >>> wanted("plant/*/@adv/*/c0ffee/1/**", "_anyke;_sn=3..7")
    Wanted(pattern='plant/*', zid='c0ffee', start=4, stop=9, newest=0, age_s=0.0)
    >>> wanted("plant/**/@adv/**", "_max=5;_time=[now(-2.5s)..]").newest
    5
    """
    topic, found, entity = key.partition(ADV)
    if not found:
        return None
    parts = entity.split("/")
    zid = parts[1] if len(parts) > 2 and "*" not in parts[1] else ""
    values = dict(part.partition("=")[::2] for part in parameters.split(";"))
    try:
        start, stop = _range(values["_sn"]) if "_sn" in values else (1, SEQ_MAX)
        return Wanted(topic, zid, start, stop, max(_number(values.get("_max", "")), 0), _age_s(values))
    except ValueError:
        return None


def selected(parameters: str) -> tuple[int, float, tuple[int, int] | None] | None:
    """What a query for a topic asks for: the newest N, no older ones than so many seconds, and which seqs.

    None if it is not valid.

    >>> selected("_max=5"), selected(""), selected("_sn=0..4")
    ((5, 0.0, None), (1, 0.0, None), (4294967296, 0.0, (1, 6)))
    """
    values = dict(part.partition("=")[::2] for part in parameters.split(";"))
    try:
        age_s, bounds = _age_s(values), _range(values["_sn"]) if "_sn" in values else None
        default = WRAP if age_s or bounds else 1
        return max(_number(values.get("_max", "")) or default, 1), age_s, bounds
    except ValueError:
        return None


def _range(text: str) -> tuple[int, int]:
    """`3..7`, `3..`, `..7` or `3`: the seqs `[start, stop)`."""
    start, dots, stop = text.partition("..")
    low = _number(start) + 1
    return low, (_number(stop) + 2 if stop else SEQ_MAX) if dots else low + 1


def _number(text: str) -> int:
    """A number, 0 if nothing is written. Raises `ValueError`."""
    if len(text) > DIGITS_MAX:
        raise ValueError(text[:DIGITS_MAX])
    return int(text or 0)


def _age_s(values: dict[str, str]) -> float:
    found = AGE.match(values.get("_time", ""))
    return min(float(found[1]) * UNITS[found[2]], AGE_S_MAX) if found else 0.0
