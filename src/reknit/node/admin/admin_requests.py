"""Answers the admin requests of peers: status, ledger, configuration, links, routes, dead letters, and the journal."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

import msgspec

from reknit.config import Config, describe
from reknit.errors import Gone, LocalError, Refused
from reknit.fields import NUMBER_MAX
from reknit.node.admin import positions
from reknit.node.admin.figures import NodeFigures
from reknit.node.admin.inspection.clients import Clients
from reknit.node.admin.inspection.event_search import search
from reknit.node.admin.inspection.event_story import EventStories
from reknit.node.admin.inspection.log_tail import log_tail
from reknit.node.admin.inspection.source_map import source_map
from reknit.node.admin.journal_requests import JournalRequests, Reply
from reknit.node.admin.listings import Listings
from reknit.node.admin.owners import owners
from reknit.node.admin.queue_figures import QueueFigures
from reknit.node.anycast.anycast import NodeAnycast
from reknit.node.core.core import Core
from reknit.node.core.orders import OnOrder
from reknit.node.links.link_admin import LinkAdmin
from reknit.node.peers.peers import PeerState
from reknit.node.recovery.aligned import AlignedEvents
from reknit.node.replication.bridges import Bridges
from reknit.node.replication.local_publisher import ReportLoss
from reknit.outcome import Code
from reknit.protocol.machine import Peer
from reknit.records import Skipped
from reknit.records import encode as encode_record
from reknit.topic import check_topic
from reknit.wire.codec import encode
from reknit.wire.messages import Answer, Ask

RUNNING_MAX: Final = 32
"""How many requests of one peer that take a while are answered at a time."""
ALL_RUNNING_MAX: Final = 1_024
"""The same for all peers."""
ORDERS = ("pause", "resume", "redrive", "drop_dead_letters", "own", "cancel")
"""Requests that change state, and are answered when the change is durable."""
TOPIC_SHOWN_MAX: Final = 200
SKIP = "skip"
"""It changes state too: the loss that it reports is durable before it is answered."""
UNANSWERABLE = (Refused, LocalError, LookupError, TypeError, ValueError, OverflowError, AttributeError)
"""The errors that arguments of a wrong type or size raise."""

Answering = Callable[[dict[str, Any]], Reply]
AnsweringLater = Callable[[dict[str, Any]], Coroutine[Any, Any, Any]]


class AdminResponder:
    """Answers requests over connections. A request that can't be answered gets a code and a text."""

    def __init__(
        self,
        *,
        config: Config,
        core: Core,
        figures: NodeFigures,
        queues: QueueFigures,
        links: LinkAdmin,
        anycast: NodeAnycast,
        bridges: Bridges,
        aligned: AlignedEvents,
        report_loss: ReportLoss,
        on_order: OnOrder,
        clients: Clients,
        stories: EventStories,
        audited: Callable[[int], list[dict[str, Any]]],
    ) -> None:
        self._config = config
        self._core = core
        self._aligned = aligned
        self._report_loss = report_loss
        self._on_order = on_order
        core.orders.watch(on_order)
        self._figures_of = figures
        self._log = log_tail()
        listings = Listings(core, figures)
        self._requests: dict[str, Answering] = {
            **self._figures(figures),
            "topics_page": lambda args: (listings.topics(args), []),
            "subscribers_page": lambda args: (listings.subscribers(args), []),
            "fate": lambda args: (listings.fate(args), []),
            "end_connection": lambda args: (clients.end(args), []),
            "log_tail": lambda args: (self._log.rows(int(args.get("limit", 100))), []),
            "audit_tail": lambda args: (audited(int(args.get("limit", 100))), []),
            **self._journal(),
            **self._others(links, anycast, bridges),
        }
        self._tasks: dict[str, AnsweringLater] = {
            "route_add": bridges.ask_add,
            "route_delete": bridges.ask_delete,
            "ledger": figures.ledger,
            "ledger_page": listings.ledger,
            "losses": listings.losses,
            "clients": clients.page,
            "metrics": self._metrics,
            "story": stories.story,
            "queues": queues.rows,
            "align": self._align,
            "checkpoint": JournalRequests(core, config).checkpoint,
        }
        """Requests that take a while, and are answered when they are done."""
        self._running: set[asyncio.Task[None]] = set()
        self._asking: Counter[Peer] = Counter()
        """How many of these each peer has asked for."""

    def _figures(self, figures: NodeFigures) -> dict[str, Answering]:
        return {
            "status": lambda args: (figures.status(), []),
            "summary": lambda args: (figures.summary(), []),
            "topics": lambda args: (figures.topics(), []),
            "pipelines": lambda args: (figures.pipelines.rows(), []),
            "pipeline": lambda args: (figures.pipelines.note(args), []),
            "config": self._describe,
        }

    def _journal(self) -> dict[str, Answering]:
        journal, requests = self._core.journal, JournalRequests(self._core, self._config)
        return {
            "span": requests.span,
            "read": requests.read,
            "records": requests.records,
            "find": requests.find,
            "search": lambda args: (search(journal, args), []),
            "sources_page": lambda args: (source_map(journal, args), []),
            "index": lambda args: (positions.index(journal, args), []),
            "streams": lambda args: (positions.streams(journal), []),
            SKIP: self._skip,
        }

    def _others(self, links: LinkAdmin, anycast: NodeAnycast, bridges: Bridges) -> dict[str, Answering]:
        core = self._core
        return {
            "dead_letters": lambda args: (_letters(core.dead_letter_admin.page(args), args), []),
            "scheduled": lambda args: (core.scheduling.page(args), []),
            "owners": lambda args: (owners(core.journal.ledger, args), []),
            "paused": lambda args: (core.dispatch.pauses.patterns, []),
            "links": lambda args: (links.rows(), []),
            "link_add": lambda args: (links.ask_add(args), []),
            "link_remove": lambda args: (links.ask_remove(args), []),
            "routes": lambda args: (bridges.rows(), []),
            "vias": lambda args: (bridges.visited.of(args["sources"]), []),
            "anycast": lambda args: (anycast.status(), []),
            "trail": lambda args: (
                anycast.attempts(bytes.fromhex(args["source"]), int(args["seq"])),
                [],
            ),
        }

    def answer(self, ask: Ask, peer: PeerState) -> None:
        """Answer a request, at once or when it is done."""
        for name, value in ask.args.items():
            if isinstance(value, int | float) and abs(value) > NUMBER_MAX:  # no answer could name it
                self._refuse(ask, peer, ValueError(f"{name} can't be {value}"))
                return
        if ask.what == "whoami":
            peer.send(Answer(ask.id, Code.OK, "", self._figures_of.rights(peer.identity)))
            return
        if ask.what in ORDERS:
            self._core.order(ask, peer.id, asyncio.get_running_loop().time())
            return
        if ask.what in self._tasks:
            self._begin(ask, peer)
            return
        request = self._requests.get(ask.what)
        if request is None:
            known = ", ".join(sorted((*self._requests, *self._tasks)))
            peer.send(
                Answer(ask.id, Code.UNIMPLEMENTED, f"{ask.what!r} is not a request: send one of {known}")
            )
            return
        try:
            body, pieces = request(ask.args)
        except Gone as gone:
            peer.send(Answer(ask.id, Code.OUT_OF_RANGE, str(gone), {"first_held": gone.first_held}))
        except UNANSWERABLE as error:
            self._refuse(ask, peer, error)
        else:
            answer = Answer(ask.id, Code.OK, "", body, sum(map(len, pieces)))
            self._on_order(ask, peer.id, Code.OK, "", None)
            if ask.what == SKIP:
                self._core.say_when_durable(peer.id, answer, asyncio.get_running_loop().time())
            else:
                peer.send_buffers([encode(answer), *pieces])

    def _begin(self, ask: Ask, peer: PeerState) -> None:
        if self._asking[peer.id] >= RUNNING_MAX or len(self._running) >= ALL_RUNNING_MAX:
            text = f"{ask.what}: too many requests are being answered: wait for their answers"
            peer.send(Answer(ask.id, Code.RESOURCE_EXHAUSTED, text))
            return
        task = asyncio.create_task(self._answer_when_done(ask, peer))
        self._running.add(task)
        self._asking[peer.id] += 1
        task.add_done_callback(partial(self._ended, peer.id))

    def _ended(self, peer: Peer, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._asking[peer] -= 1
        if not self._asking[peer]:
            del self._asking[peer]

    async def _answer_when_done(self, ask: Ask, peer: PeerState) -> None:
        try:
            body = await self._tasks[ask.what](ask.args)
        except UNANSWERABLE as error:
            self._refuse(ask, peer, error)
        except Exception:
            peer.send(Answer(ask.id, Code.INTERNAL, f"{ask.what}: the node's log says what went wrong"))
            raise
        else:
            self._on_order(ask, peer.id, Code.OK, "", None)
            peer.send(Answer(ask.id, Code.OK, "", body))

    def _refuse(self, ask: Ask, peer: PeerState, error: Exception) -> None:
        answer = _refusal(ask, error)
        peer.send(answer)
        self._on_order(ask, peer.id, Code(answer.code), answer.text, None)

    async def _metrics(self, args: dict[str, Any]) -> str:
        """Every metric as Prometheus reads it."""
        from reknit.node.admin.metrics import metrics_text  # it loads slowly

        return metrics_text(*await self._figures_of.for_metrics())

    def _describe(self, args: dict[str, Any]) -> Reply:
        """Every setting except secret ones, and where its value comes from."""
        return [row._asdict() for row in describe(self._config)], []

    def _skip(self, args: dict[str, Any]) -> Reply:
        """No member of a group has `[start, stop)`: continue after it, and report it to subscribers that are owed it."""
        topic, source = check_topic(args["topic"]), bytes.fromhex(args["source"])
        if not topic.startswith("group/"):
            raise ValueError(f"only events of groups can be skipped, not {topic[:TOPIC_SHOWN_MAX]!r}")
        start, stop = max(int(args["start"]), self._core.intake.expected(source)), int(args["stop"])
        if start < stop:
            encode_record(Skipped(topic, source, start, stop))  # it must be readable: nothing has changed yet
            self._report_loss((topic, source), start, stop, "no member of the group has it")
        return {"start": start, "stop": stop}, []

    async def _align(self, args: dict[str, Any]) -> Any:
        """The events that are held here, level by level: see `reknit.protocol.recovery.alignment`."""
        return msgspec.to_builtins(await self._aligned.compare(args), builtin_types=(bytes,))


def _letters(body: dict[str, Any], args: dict[str, Any]) -> dict[str, Any]:
    """Dead letters as they are, or without what is in them, for those who may only watch."""
    if args.get("payloads") is False:
        hidden = {"payload": b"", "columns": {}, "header": b"", "has_payload": False}
        body["letters"] = [[number, {**letter, **hidden}] for number, letter in body["letters"]]
    return body


def _refusal(ask: Ask, error: Exception) -> Answer:
    if isinstance(error, Refused):
        return Answer(ask.id, error.code, error.text)
    text = str(error) if isinstance(error, LocalError) else f"{ask.what}: {error!r}"
    return Answer(ask.id, Code.INVALID_ARGUMENT, text)
