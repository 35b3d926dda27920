"""The resources below `/api/v1/`: what each answers, from admin requests that are made for whoever asks."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import msgspec

from reknit.batch import Batch
from reknit.console.parameters import LIMIT, OFFSET, Parameter
from reknit.dead_letter import DeadLetterContent, DeadLetterFilter
from reknit.errors import LocalError, Refused
from reknit.event import Event
from reknit.fields import NUMBER_MAX, Number
from reknit.outcome import Code
from reknit.topic import check_topic

Values = Mapping[str, Any]
PAYLOAD_SHOWN_MAX: Final = 64 << 10
"""The bytes of a payload that an answer has; its length says how many there are."""
LEDGER_ORDERS: Final = ("trouble", "lost", "dead_lettered", "in_flight", "published", "accepted")
TOPIC_ORDERS: Final = ("topic", "events", "sources", "gaps")


class Asking(Protocol):
    """A connection to the node, as far as resources need it."""

    async def ask(self, what: str, **args: Any) -> Any:
        """Make an admin request."""

    async def ask_raw(self, what: str, **args: Any) -> tuple[Any, bytes]:
        """The same, with the bytes that come with the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One method of one path."""

    path: str
    help: str
    answer: Callable[[Asking, Values], Awaitable[Any]]
    method: str = "GET"
    parameters: Sequence[Parameter] = ()
    body: type[Any] | None = None
    """What a POST sends as JSON; it is in the values as `body`."""


async def _summary(node: Asking, values: Values) -> Any:
    return await node.ask("summary")


async def _ledger(node: Asking, values: Values) -> Any:
    return await node.ask("ledger_page", **values)


async def _topics(node: Asking, values: Values) -> Any:
    return await node.ask("topics_page", **values)


async def _subscribers(node: Asking, values: Values) -> Any:
    return await node.ask("subscribers_page", **values)


async def _links(node: Asking, values: Values) -> Any:
    return {"links": await node.ask("links"), "routes": await node.ask("routes")}


async def _config(node: Asking, values: Values) -> Any:
    return await node.ask("config")


async def _losses(node: Asking, values: Values) -> Any:
    return await node.ask("losses", **values)


async def _event(node: Asking, values: Values) -> Any:
    """An event, what became of it for each subscriber, and this node's attempts to deliver it to one of many."""
    topic = check_topic(values["topic"])
    source, seq = event_id(values["id"])
    _, data = await node.ask_raw("find", topic=topic, source=source, start=seq, stop=seq + 1)
    fate = await node.ask("fate", topic=topic, source=source.hex(), seq=seq)
    shown = [_shown(event) for event in Batch.parse(data).events() if event.seq == seq] if data else []
    return {
        "event": shown[0] if shown else None,
        "outcomes": fate,
        "attempts": await _attempts(node, source, seq),
    }


async def _attempts(node: Asking, source: bytes, seq: int) -> Any:
    """The attempts that the node remembers; none for those who may not see them."""
    try:
        return (await node.ask("trail", source=source.hex(), seq=seq))["attempts"]
    except Refused as error:
        if error.code != Code.PERMISSION_DENIED:
            raise
        return []


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


_FILTER: Final = (
    Parameter("reason", "only those with this reason, such as expired"),
    Parameter("topic", "only events of topics that match this pattern"),
    Parameter("code", "only those with this google.rpc code, such as UNAVAILABLE"),
    Parameter("subscriber", "only those that this subscriber did not get"),
    Parameter("since_us", "only those that died at this time or later (µs since 1970)", 0),
    Parameter("until_us", "only those that died before this time; 0: all", 0),
)


async def _letters(node: Asking, values: Values) -> Any:
    wanted = {one.name: values[one.name] for one in _FILTER}
    place = {"before": values["before"] or NUMBER_MAX}
    body = await node.ask("dead_letters", wanted=wanted, limit=values["limit"], **place)
    return {**body, "letters": [_letter(number, row) for number, row in body["letters"]]}


def _letter(number: int, row: Any) -> dict[str, Any]:
    letter = msgspec.convert(row, DeadLetterContent)
    return {
        "number": number,
        "id": letter.id,
        "topic": letter.topic,
        "time_us": letter.time_us,
        "subscriber": letter.subscriber,
        "code": _code_name(letter.code),
        "reason": letter.reason,
        "text": letter.text,
        "attempts": letter.attempts,
        "node": letter.node,
        "path": letter.path,
        "died_us": letter.died_us,
        "redriven": letter.redriven,
        "original": letter.original,
        "payload": payload_of(letter.payload) if letter.has_payload else None,
    }


def _code_name(code: int) -> str:
    return Code(code).name if code in Code._value2member_map_ else str(code)


class LetterOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which dead letters to redrive or drop: a page of those that match. Continue after `next` until `is_end`."""

    wanted: DeadLetterFilter = DeadLetterFilter()
    after: Number = 0
    stop: Number = NUMBER_MAX
    limit: Number = 1_000
    is_dry: bool = False
    """Only count them."""


class RedriveOrder(LetterOrder, frozen=True, forbid_unknown_fields=True):
    """The same for redriving them: to `all` subscribers of a topic, or to the `subscriber` that an event failed at."""

    to: Literal["all", "subscriber"] = "all"


async def _redrive(node: Asking, values: Values) -> Any:
    return await node.ask("redrive", **msgspec.to_builtins(values["body"]), clears_ttl=False)


async def _drop(node: Asking, values: Values) -> Any:
    return await node.ask("drop_dead_letters", **msgspec.to_builtins(values["body"]))


RESOURCES: Final = (
    Resource(path="summary", help="The node's state.", answer=_summary),
    Resource(
        path="ledger",
        help="What became of every event: sums, and the rows with trouble first.",
        answer=_ledger,
        parameters=(
            Parameter("topic", "only topics that match this pattern"),
            Parameter("subscriber", "only this subscriber"),
            Parameter("order", "what comes first", "trouble", choices=LEDGER_ORDERS),
            LIMIT,
            OFFSET,
        ),
    ),
    Resource(
        path="topics",
        help="Topics, with their events, rates, sources and gaps.",
        answer=_topics,
        parameters=(
            Parameter("topic", "only topics that match this pattern"),
            Parameter("order", "by name, or what comes first", "topic", choices=TOPIC_ORDERS),
            LIMIT,
            OFFSET,
        ),
    ),
    Resource(
        path="subscribers",
        help="Subscribers, those that are furthest behind first.",
        answer=_subscribers,
        parameters=(Parameter("name", "only those whose name has this in it"), LIMIT, OFFSET),
    ),
    Resource(
        path="losses",
        help="Ranges of lost events, with their reasons until the subscriber has confirmed them.",
        answer=_losses,
        parameters=(Parameter("topic", "only topics that match this pattern"), LIMIT),
    ),
    Resource(
        path="links", help="Links to other nodes, known nodes, and the routes of bridges.", answer=_links
    ),
    Resource(path="config", help="Every setting except secret ones.", answer=_config),
    Resource(
        path="event",
        help="One event, and what became of it.",
        answer=_event,
        parameters=(Parameter("topic", "the event's topic"), Parameter("id", "SOURCE:SEQ")),
    ),
    Resource(
        path="dead-letters",
        help="Dead letters, the newest first. Continue with before=next until is_end.",
        answer=_letters,
        parameters=(*_FILTER, Parameter("before", "only those with a smaller number; 0: all", 0), LIMIT),
    ),
    Resource(
        path="dead-letters/redrive",
        help="Publish dead letters again, a page at a time.",
        answer=_redrive,
        method="POST",
        body=RedriveOrder,
    ),
    Resource(
        path="dead-letters/drop",
        help="Drop dead letters for good, a page at a time.",
        answer=_drop,
        method="POST",
        body=LetterOrder,
    ),
)
