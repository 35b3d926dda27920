"""One event: found by its id or its content, what became of it, and its way over the nodes of the fabric."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from reknit.batch import Batch
from reknit.console.asking import Asking
from reknit.errors import LocalError, Refused, ReknitError
from reknit.event import Event
from reknit.outcome import Code
from reknit.topic import check_topic

Values = Mapping[str, Any]
PAYLOAD_SHOWN_MAX: Final = 64 << 10
"""The bytes of a payload that an answer has; its length says how many there are."""
NODES_MAX: Final = 20
"""So many other nodes are asked for the trail of an event."""
NODE_S_MAX: Final = 5.0
"""How long another node may take to answer."""


async def find_event(node: Asking, values: Values) -> Any:
    """An event, and what became of it for each subscriber."""
    topic = check_topic(values["topic"])
    source, seq = event_id(values["id"])
    outcomes = await node.ask("fate", topic=topic, source=source.hex(), seq=seq)
    try:
        _, data = await node.ask_raw("find", topic=topic, source=source, start=seq, stop=seq + 1)
    except Refused as error:
        if error.code != Code.PERMISSION_DENIED:
            raise
        return {"event": None, "is_hidden": True, "outcomes": outcomes}
    shown = [_shown(event) for event in Batch.parse(data).events() if event.seq == seq] if data else []
    return {"event": shown[0] if shown else None, "is_hidden": False, "outcomes": outcomes}


async def trail(node: Asking, values: Values) -> Any:
    """What each node knows of an event: this one first, then the others, which are asked with the same token."""
    topic = check_topic(values["topic"])
    source, seq = event_id(values["id"])
    args = {"topic": topic, "source": source.hex(), "seq": seq}
    here = await node.ask("story", **args, position=values["position"])
    if values["position"]:
        return {"nodes": [here]}
    urls = await _others(node)
    found = await asyncio.gather(*(_ask(node, name, url, args) for name, url in urls.items()))
    return {"nodes": [here, *found]}


async def _others(node: Asking) -> dict[str, str]:
    """The other nodes that can be reached, if the operator may know them."""
    try:
        rows = await node.ask("links")
    except Refused:
        return {}
    reached = [row for row in rows if row["state"] in ("linked", "reached") and row["url"]]
    return {row["node"]: row["url"] for row in reached[:NODES_MAX]}


async def _ask(node: Asking, name: str, url: str, args: Mapping[str, Any]) -> Any:
    """The story that another node tells, or why it tells none."""
    try:
        async with asyncio.timeout(NODE_S_MAX):
            return await node.ask_node(url, "story", **args)
    except TimeoutError:
        why = f"did not answer within {NODE_S_MAX:.0f} s"
    except (ReknitError, OSError) as error:
        why = str(error)
    return {"node": name, "problem": why, "facts": [], "forwards": [], "lakes": [], "is_known": False}


async def search(node: Asking, values: Values) -> Any:
    """A part of a search. `place` is passed back as it came."""
    try:
        place = msgspec.json.decode(values["place"]) if values["place"] else None
    except msgspec.DecodeError:
        raise LocalError("place is not what `next` said") from None
    args = {name: value for name, value in values.items() if value and name != "place"}
    body = await node.ask("search", **args, **({"place": place} if place else {}))
    after = body["next"]
    return {**body, "next": None if after is None else msgspec.json.encode(after).decode()}


def event_id(text: str) -> tuple[bytes, int]:
    """The source and seq of an event's id. Raises `LocalError`.

    >>> event_id("00" * 16 + ":7")
    (b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00', 7)
    """
    source, _, seq = text.rpartition(":")
    try:
        found = bytes.fromhex(source)
    except ValueError:
        found = b""
    if len(found) != 16 or not (seq.isascii() and seq.isdigit() and len(seq) < 19):
        raise LocalError(
            f"invalid event id {text!r}: write SOURCE:SEQ, where SOURCE is 32 hexadecimal digits"
        )
    return found, int(seq)


def _shown(event: Event) -> dict[str, Any]:
    return {
        "topic": event.topic,
        "source": event.source.hex(),
        "seq": event.seq,
        "time_us": event.time_us,
        "ttl_ms": event.ttl_ms,
        "priority": event.batch.head.priority,
        "key": event.key,
        "headers": event.headers,
        "payload": payload_of(event.payload),
    }


def payload_of(payload: bytes) -> dict[str, Any]:
    """A payload as JSON has it: as text if it is UTF-8, or in base64. A long one is cut.

    >>> payload_of(b"21.5")
    {'bytes': 4, 'text': '21.5'}
    """
    shown = payload[:PAYLOAD_SHOWN_MAX]
    try:
        return {"bytes": len(payload), "text": shown.decode()}
    except UnicodeDecodeError:
        return {"bytes": len(payload), "base64": base64.b64encode(shown).decode()}
