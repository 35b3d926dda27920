"""Orders that change something beside dead letters: publish an event, end a connection."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import msgspec

from reknit.console.asking import Asking
from reknit.errors import LocalError
from reknit.fields import Number
from reknit.topic import check_topic

Values = Mapping[str, Any]


class EndOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which connection to end."""

    connection: str


async def end_connection(node: Asking, values: Values) -> Any:
    """End a connection."""
    return await node.ask("end_connection", connection=values["body"].connection)


class PublishOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One event."""

    topic: str
    text: str = ""
    base64: str = ""
    """The payload in base64, where it is no text."""
    headers: dict[str, str] = {}
    key: str = ""
    ttl_ms: Number = 0


async def publish(node: Asking, values: Values) -> Any:
    """Publish an event. The answer has its id."""
    order: PublishOrder = values["body"]
    topic = check_topic(order.topic)
    try:
        payload = base64.b64decode(order.base64, validate=True) if order.base64 else order.text.encode()
    except binascii.Error:
        raise LocalError("base64 is not valid") from None
    columns: dict[str, list[Any]] = {}
    if order.headers:
        columns["headers"] = [order.headers]
    if order.key:
        columns["key"] = [order.key]
    if not 0 <= order.ttl_ms < 1 << 32:
        raise LocalError(f"ttl_ms can't be {order.ttl_ms}: it is a number from 0 to {(1 << 32) - 1}")
    id = await node.publish(topic, payload, ttl_ms=order.ttl_ms, columns=columns or None)
    return {"id": id, "topic": topic}
