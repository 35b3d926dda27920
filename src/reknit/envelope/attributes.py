"""An event's uProtocol attributes, and what each type of event requires of them.

    type          source resource  sink                  priority   ttl     reqid
    publish       8000-FFFE        none                  any        any
    notification  8000-FFFE        with resource 0       any        any
    request       0                with resource 1-7FFF  CS4 or up  over 0
    response      1-7FFF           with resource 0       CS4 or up  any     the request's id

Invalid attributes are always the sender's fault: the code is INVALID_ARGUMENT.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from reknit.address import Address
from reknit.batch_layout import TYPE_NOTIFICATION, TYPE_PUBLISH, TYPE_REQUEST, TYPE_RESPONSE
from reknit.envelope.ids import check_id, time_ms_of
from reknit.errors import InvalidAttributes
from reknit.outcome import Code

TTL_MS_MAX: Final = (1 << 32) - 1
LEVEL_MAX: Final = (1 << 32) - 1
TOKEN_CHARS_MAX: Final = 8192
NO_EXTENSIONS: Final[Mapping[str, str | int | bool]] = {}


class Kind(IntEnum):
    """The types of events."""

    PUBLISH = TYPE_PUBLISH
    REQUEST = TYPE_REQUEST
    RESPONSE = TYPE_RESPONSE
    NOTIFICATION = TYPE_NOTIFICATION


class Priority(IntEnum):
    """From bulk to safety. In protobuf each number is one higher."""

    CS0 = 0
    CS1 = 1
    CS2 = 2
    CS3 = 3
    CS4 = 4
    CS5 = 5
    CS6 = 6


class Format(IntEnum):
    """The format of a payload, for the receiver. reknit never opens a payload."""

    UNSPECIFIED = 0
    PROTOBUF_WRAPPED_IN_ANY = 1
    PROTOBUF = 2
    JSON = 3
    SOMEIP = 4
    SOMEIP_TLV = 5
    RAW = 6
    TEXT = 7
    SHM = 8


class Attributes(msgspec.Struct, frozen=True, kw_only=True):
    """The uProtocol attributes of an event, made by a program or read from the network. `check` validates them.

    >>> from reknit.envelope.ids import make_id
    >>> published = Attributes(id=make_id(1, 2), type=Kind.PUBLISH, source=Address.parse("//vcu/10/1/8001"))
    >>> check(published) is published, published.topic
    (True, 'up/vcu/10/0/1/8001')
    """

    id: UUID
    type: Kind
    source: Address
    sink: Address | None = None
    priority: Priority = Priority.CS1
    ttl_ms: int = 0
    permission_level: int | None = None
    commstatus: Code | None = None
    reqid: UUID | None = None
    token: str | None = None
    traceparent: str | None = None
    payload_format: Format = Format.UNSPECIFIED
    extensions: Mapping[str, str | int | bool] = NO_EXTENSIONS
    """Further attributes of a CloudEvent, such as `hash`: carried unchanged from end to end."""

    @property
    def topic(self) -> str:
        """The topic that the event goes to: its source's if published, its sink's otherwise."""
        address = self.source if self.type is Kind.PUBLISH else self.sink
        if address is None:
            raise InvalidAttributes("sink", f"of a {self.type.name.lower()} is missing")
        return address.topic

    @property
    def time_ms(self) -> int:
        """When it was made, by its sender's clock."""
        return time_ms_of(self.id)

    def is_expired(self, now_ms: int) -> bool:
        """Whether its ttl has run out; an event without a ttl never expires."""
        return 0 < self.ttl_ms < now_ms - self.time_ms


class _Rule(NamedTuple):
    source: range
    sink: range | None
    priority_min: Priority = Priority.CS0
    ttl_ms_min: int = 0
    needs_reqid: bool = False


_TOPICS, _METHODS, _ENTITY = range(0x8000, 0xFFFF), range(1, 0x8000), range(1)
RULES: Final = {
    Kind.PUBLISH: _Rule(_TOPICS, None),
    Kind.NOTIFICATION: _Rule(_TOPICS, _ENTITY),
    Kind.REQUEST: _Rule(_ENTITY, _METHODS, Priority.CS4, 1),
    Kind.RESPONSE: _Rule(_METHODS, _ENTITY, Priority.CS4, needs_reqid=True),  # it has its request's priority
}
_TRACE = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")


def check(attributes: Attributes) -> Attributes:
    """Returns the attributes unchanged if they fit their type. Raises `InvalidAttributes`."""
    rule = RULES[attributes.type]
    kind = attributes.type.name.lower()
    check_id(attributes.id)
    _check_resource("source", kind, attributes.source, rule.source)
    if rule.sink is not None:
        _check_resource("sink", kind, attributes.sink, rule.sink)
    elif attributes.sink is not None:
        raise InvalidAttributes("sink", f"of a {kind} must be absent, not {attributes.sink}")
    if attributes.priority < rule.priority_min:
        why = f"of a {kind} must be {rule.priority_min.name} or higher, not {attributes.priority.name}"
        raise InvalidAttributes("priority", why)
    if not rule.ttl_ms_min <= attributes.ttl_ms <= TTL_MS_MAX:
        why = f"of a {kind} must be from {rule.ttl_ms_min} to {TTL_MS_MAX} ms, not {attributes.ttl_ms}"
        raise InvalidAttributes("ttl", why)
    if rule.needs_reqid and attributes.reqid is None:
        raise InvalidAttributes("reqid", f"of a {kind} is missing")
    _check_others(attributes)
    return attributes


def _check_resource(name: str, kind: str, address: Address | None, allowed: range) -> None:
    if address is None:
        raise InvalidAttributes(name, f"of a {kind} is missing")
    if address.is_pattern:
        raise InvalidAttributes(name, f"of a {kind} must be without wildcards, not {address}")
    if address.resource not in allowed:
        first, last = allowed[0], allowed[-1]
        span = f"{first:X}" if first == last else f"from {first:X} to {last:X}"
        raise InvalidAttributes(name, f"of a {kind} must have resource {span}, not {address}")


def _check_others(attributes: Attributes) -> None:
    if attributes.reqid is not None:
        check_id(attributes.reqid, "reqid")
    level = attributes.permission_level
    if level is not None and not 0 <= level <= LEVEL_MAX:
        raise InvalidAttributes("permission_level", f"must be from 0 to {LEVEL_MAX}, not {level}")
    if attributes.token is not None and len(attributes.token) > TOKEN_CHARS_MAX:
        raise InvalidAttributes(
            "token", f"must have at most {TOKEN_CHARS_MAX} characters, not {len(attributes.token)}"
        )
    if attributes.traceparent is not None and not is_traceparent(attributes.traceparent):
        raise InvalidAttributes(
            "traceparent", f"must follow W3C Trace Context, not {attributes.traceparent!r:.60}"
        )


def is_traceparent(text: str) -> bool:
    """Whether a text is a valid traceparent of W3C Trace Context.

    >>> is_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    True
    >>> is_traceparent("00-00000000000000000000000000000000-b7ad6b7169203331-01")
    False
    """
    found = _TRACE.fullmatch(text)
    if found is None or found[1] == "ff" or set(found[2]) == {"0"} or set(found[3]) == {"0"}:
        return False
    return found[4] is None or found[1] != "00"


def response_to(
    request: Attributes, id: UUID, code: Code = Code.OK, payload_format: Format = Format.UNSPECIFIED
) -> Attributes:
    """The attributes of the response to a request: to its source, with its priority, ttl and trace."""
    assert request.type is Kind.REQUEST, "only requests have responses"
    assert request.sink is not None, "a checked request has a sink"
    return Attributes(
        id=id,
        type=Kind.RESPONSE,
        source=request.sink,
        sink=request.source,
        priority=max(request.priority, Priority.CS4),  # only a malformed request has a lower one
        ttl_ms=request.ttl_ms,
        commstatus=None if code is Code.OK else code,
        reqid=request.id,
        traceparent=request.traceparent,
        payload_format=payload_format,
    )
