"""Attributes for tests: sound ones of every type, and ways to make them unsound."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from msgspec import structs

from reknit.address import Address
from reknit.envelope.attributes import Attributes, Format, Kind, Priority
from reknit.envelope.ids import make_id
from reknit.outcome import Code

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TOPIC = Address.parse("//vcu.my_vin/10010/1/8001")
METHOD = Address.parse("//vcu.my_vin/10010/1/7")
CLIENT = Address.parse("//phone/20/1/0")
SOUND = {
    Kind.PUBLISH: Attributes(id=make_id(1, 2), type=Kind.PUBLISH, source=TOPIC),
    Kind.NOTIFICATION: Attributes(id=make_id(1, 3), type=Kind.NOTIFICATION, source=TOPIC, sink=CLIENT),
    Kind.REQUEST: Attributes(
        id=make_id(1, 4), type=Kind.REQUEST, source=CLIENT, sink=METHOD, priority=Priority.CS4, ttl_ms=5
    ),
    Kind.RESPONSE: Attributes(
        id=make_id(1, 5),
        type=Kind.RESPONSE,
        source=METHOD,
        sink=CLIENT,
        priority=Priority.CS4,
        ttl_ms=5,
        reqid=make_id(1, 4),
    ),
}


def changed(kind: Kind, **changes: Any) -> Attributes:
    """Sound attributes, but for these."""
    return structs.replace(SOUND[kind], **changes)


ids = st.builds(make_id, st.integers(0, (1 << 48) - 1), st.integers(0, (1 << 74) - 1))
texts = st.text(st.characters(codec="utf-8"), max_size=20)
_names = st.text("abcxyz019", min_size=1, max_size=8)
_extensions = st.dictionaries(_names, st.one_of(texts, st.integers(-(1 << 31), (1 << 31) - 1), st.booleans()))


@st.composite
def sound(draw: st.DrawFn) -> Attributes:
    """Any attributes that hold."""
    made = SOUND[draw(st.sampled_from(list(Kind)))]
    is_request = made.type is Kind.REQUEST
    is_rpc = made.type in (Kind.REQUEST, Kind.RESPONSE)
    reqid: UUID | None = draw(ids) if made.type is Kind.RESPONSE else None
    return structs.replace(
        made,
        id=draw(ids),
        priority=Priority(draw(st.integers(4 if is_rpc else 0, 6))),
        ttl_ms=draw(st.integers(1 if is_request else 0, (1 << 32) - 1)),
        permission_level=draw(st.none() | st.integers(0, (1 << 32) - 1)),
        commstatus=draw(st.none() | st.sampled_from(Code)),
        reqid=reqid,
        token=draw(st.none() | texts),
        traceparent=draw(st.sampled_from([None, TRACE])),
        payload_format=draw(st.sampled_from([Format.UNSPECIFIED, Format.RAW, Format.PROTOBUF, Format.SHM])),
        extensions=draw(_extensions),
    )
