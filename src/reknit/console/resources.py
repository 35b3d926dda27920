"""The resources below `/api/v1/`: what each answers, from admin requests that are made for whoever asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reknit.console.asking import Asking
from reknit.console.dead_letters import DropOrder, RedriveOrder, drop, letters, redrive
from reknit.console.events import find_event, search, trail
from reknit.console.orders import EndOrder, PublishOrder, end_connection, publish
from reknit.console.parameters import LIMIT, OFFSET, Parameter

Values = Mapping[str, Any]
LEDGER_ORDERS: Final = ("trouble", "lost", "dead_lettered", "in_flight", "published", "accepted")
TOPIC_ORDERS: Final = ("topic", "events", "sources", "gaps")


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


def _asks(what: str) -> Callable[[Asking, Values], Awaitable[Any]]:
    """Answers with what the node answers to an admin request with these parameters."""

    async def answer(node: Asking, values: Values) -> Any:
        return await node.ask(what, **{name: value for name, value in values.items() if value != ""})

    return answer


async def _links(node: Asking, values: Values) -> Any:
    return {"links": await node.ask("links"), "routes": await node.ask("routes")}


_PATTERN: Final = Parameter("topic", "only topics that match this pattern")
_TOPIC: Final = Parameter("topic", "the topic")
_EVENT: Final = (
    Parameter("topic", "the event's topic"),
    Parameter("id", "SOURCE:SEQ"),
)
_FILTER: Final = (
    Parameter("reason", "only those with this reason, such as expired"),
    Parameter("topic", "only events of topics that match this pattern"),
    Parameter("code", "only those with this google.rpc code, such as UNAVAILABLE"),
    Parameter("subscriber", "only those that this subscriber did not get"),
    Parameter("since_us", "only those that died at this time or later (µs since 1970)", 0),
    Parameter("until_us", "only those that died before this time; 0: all", 0),
)

RESOURCES: Final = (
    Resource(path="whoami", help="Who you are for this node, and what you may do.", answer=_asks("whoami")),
    Resource(path="summary", help="The node's state.", answer=_asks("summary")),
    Resource(
        path="ledger",
        help="What became of every event: sums, and the rows with trouble first; each with its last minutes.",
        answer=_asks("ledger_page"),
        parameters=(
            _PATTERN,
            Parameter("subscriber", "only this subscriber"),
            Parameter("order", "what comes first", "trouble", choices=LEDGER_ORDERS),
            LIMIT,
            OFFSET,
        ),
    ),
    Resource(
        path="topics",
        help="Topics, with their events, rates, sources and gaps.",
        answer=_asks("topics_page"),
        parameters=(
            _PATTERN,
            Parameter("order", "by name, or what comes first", "topic", choices=TOPIC_ORDERS),
            LIMIT,
            OFFSET,
        ),
    ),
    Resource(
        path="sources",
        help="The sources of a topic as strips of their seqs: held, removed, gap or lost.",
        answer=_asks("sources_page"),
        parameters=(
            _TOPIC,
            Parameter("source", "only this source"),
            Parameter("start", "the first seq of the strips; 0: from the beginning", 0),
            Parameter("stop", "the seq after the last; 0: to the end", 0),
            LIMIT._replace(default=20, high=50),
            OFFSET,
        ),
    ),
    Resource(
        path="subscribers",
        help="Subscribers, those that are furthest behind first.",
        answer=_asks("subscribers_page"),
        parameters=(Parameter("name", "only those whose name has this in it"), LIMIT, OFFSET),
    ),
    Resource(path="queues", help="Work queues: depth, oldest event, members.", answer=_asks("queues")),
    Resource(
        path="connections",
        help="Everyone who is connected: sessions, tunnels, AMQP clients.",
        answer=_asks("clients"),
        parameters=(
            Parameter("name", "only those with this in their name, identity, address or patterns"),
            Parameter("door", "where they came in", choices=("node", "http", "amqp")),
            LIMIT,
            OFFSET,
        ),
    ),
    Resource(
        path="connections/end",
        help="End a connection.",
        answer=end_connection,
        method="POST",
        body=EndOrder,
    ),
    Resource(
        path="losses",
        help="Ranges of lost events, with their reasons until the subscriber has confirmed them.",
        answer=_asks("losses"),
        parameters=(_PATTERN, LIMIT),
    ),
    Resource(
        path="links", help="Links to other nodes, known nodes, and the routes of bridges.", answer=_links
    ),
    Resource(
        path="pipelines",
        help="Pipelines that read this node's journal: progress, tables, last audit.",
        answer=_asks("pipelines"),
    ),
    Resource(
        path="config",
        help="Every setting except secret ones, and where its value comes from.",
        answer=_asks("config"),
    ),
    Resource(
        path="log",
        help="The last lines of the node's log, the newest first.",
        answer=_asks("log_tail"),
        parameters=(LIMIT._replace(high=500),),
    ),
    Resource(
        path="audit",
        help="The newest entries of the audit trail, the newest first.",
        answer=_asks("audit_tail"),
        parameters=(LIMIT._replace(high=500),),
    ),
    Resource(path="event", help="One event, and what became of it.", answer=find_event, parameters=_EVENT),
    Resource(
        path="trail",
        help="The way of one event over all nodes, as far as each remembers it.",
        answer=trail,
        parameters=(
            *_EVENT,
            Parameter("position", "where in the journal to continue, as `next` says", 0),
        ),
    ),
    Resource(
        path="search",
        help="Find events by their content, a part at a time. Continue with place=next until that is null.",
        answer=search,
        parameters=(
            Parameter("topic", "the topics to look on, as a pattern", "**"),
            Parameter("text", "in the payload"),
            Parameter("key", "the event's key"),
            Parameter("header", "a header: NAME or NAME=VALUE"),
            Parameter("id", "the message id"),
            Parameter("since_us", "published at this time or later (µs since 1970)", 0),
            Parameter("until_us", "published before this time; 0: all", 0),
            Parameter("place", "where to continue, as `next` said"),
            LIMIT._replace(default=50, high=200),
        ),
    ),
    Resource(path="publish", help="Publish an event.", answer=publish, method="POST", body=PublishOrder),
    Resource(
        path="dead-letters",
        help="Dead letters, the newest first. Continue with before=next until is_end.",
        answer=letters,
        parameters=(*_FILTER, Parameter("before", "only those with a smaller number; 0: all", 0), LIMIT),
    ),
    Resource(
        path="dead-letters/redrive",
        help="Publish dead letters again, a page at a time.",
        answer=redrive,
        method="POST",
        body=RedriveOrder,
    ),
    Resource(
        path="dead-letters/drop",
        help="Drop dead letters for good, a page at a time.",
        answer=drop,
        method="POST",
        body=DropOrder,
    ),
)
