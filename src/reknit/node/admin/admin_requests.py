"""What a node answers when it is asked: status, ledger, configuration, and the journal itself."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from reknit import records
from reknit.config import describe
from reknit.errors import Gone, LocalError, Refused
from reknit.node.admin import positions
from reknit.node.admin.pipelines import Pipelines
from reknit.node.anycast.ledger import ACCOUNT
from reknit.node.peers.peers import PeerState
from reknit.outcome import Code
from reknit.protocol.dispatch.queue import Queue
from reknit.topic import Pattern, check_topic
from reknit.version import __version__
from reknit.wire.codec import encode
from reknit.wire.messages import Answer, Ask

if TYPE_CHECKING:
    from reknit.node.node import Node

log = logging.getLogger("reknit.node")

READ_BYTES_MAX = 8 << 20
ORDERS = ("pause", "resume", "redrive", "drop_dead_letters")
"""What changes something, and is answered when that is durable."""
UNANSWERABLE = (Refused, LocalError, KeyError, TypeError, ValueError)


def _refusal(ask: Ask, error: Exception) -> Answer:
    if isinstance(error, Refused):
        return Answer(ask.id, error.code, error.text)
    return Answer(ask.id, Code.INVALID_ARGUMENT, f"{ask.what}: {error!r}")


class Answers:
    """Answers questions over a connection. A question that can't be answered gets a code and words, never silence."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._pipelines = Pipelines()
        self._rates: dict[str, float] = {}
        self._sampled: tuple[float, dict[str, int]] = (0.0, {})
        self._questions: dict[str, Callable[[dict[str, Any]], tuple[Any, list[memoryview]]]] = {
            "status": self._status,
            "ledger": self._ledger,
            "config": self._config,
            "topics": self._topics,
            "checkpoint": self._checkpoint,
            "span": self._span,
            "read": self._read,
            "records": self._records,
            "find": self._find,
            "align": self._align,
            "skip": self._skip,
            "dead_letters": lambda args: (node.core.letter_office.page(args), []),
            "paused": lambda args: (node.core.dispatch.pauses.patterns, []),
            "pipeline": lambda args: (self._pipelines.note(args), []),
            "index": lambda args: (positions.index(node.journal, args), []),
            "streams": lambda args: (positions.streams(node.journal), []),
            "links": lambda args: (node.links.rows(), []),
            "link_add": lambda args: (node.links.outgoing.ask_add(args), []),
            "link_remove": lambda args: (node.links.outgoing.ask_remove(args), []),
            "routes": lambda args: (node.bridges.rows(), []),
            "vias": lambda args: (node.bridges.vias.of(args["sources"]), []),
            "anycast": lambda args: (node.anycast.status(), []),
            "trail": lambda args: (
                node.anycast.attempts(bytes.fromhex(args["source"]), int(args["seq"])),
                [],
            ),
        }
        self._tasks: dict[str, Callable[[dict[str, Any]], Coroutine[Any, Any, Any]]] = {
            "route_add": node.bridges.ask_add,
            "route_delete": node.bridges.ask_delete,
        }
        """What takes a while, and is answered when it is done."""
        self._running: set[asyncio.Task[None]] = set()

    def answer(self, ask: Ask, peer: PeerState) -> None:
        """Send the answer to a question, or do what is ordered."""
        if ask.what in ORDERS:
            self._node.order(ask, peer)
            return
        if ask.what in self._tasks:
            task = asyncio.create_task(self._answer_when_done(ask, peer))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            return
        question = self._questions.get(ask.what)
        if question is None:
            known = ", ".join(sorted((*self._questions, *self._tasks)))
            peer.send(Answer(ask.id, Code.UNIMPLEMENTED, f"{ask.what!r} is no question: ask for {known}"))
            return
        try:
            body, pieces = question(ask.args)
        except Gone as gone:
            peer.send(Answer(ask.id, Code.OUT_OF_RANGE, str(gone), {"first_held": gone.first_held}))
        except UNANSWERABLE as error:
            peer.send(_refusal(ask, error))
        else:
            size = sum(map(len, pieces))
            peer.send_buffers([encode(Answer(ask.id, Code.OK, "", body, size)), *pieces])

    async def _answer_when_done(self, ask: Ask, peer: PeerState) -> None:
        try:
            body = await self._tasks[ask.what](ask.args)
        except UNANSWERABLE as error:
            peer.send(_refusal(ask, error))
        else:
            peer.send(Answer(ask.id, Code.OK, "", body))

    def _skip(self, args: dict[str, Any]) -> tuple[Any, list[memoryview]]:
        """Members of a group say that nobody of them has `[start, stop)`: go on behind it, and tell who is owed it."""
        topic, source = check_topic(args["topic"]), bytes.fromhex(args["source"])
        if not topic.startswith("group/"):
            raise ValueError(f"only what groups carry can be skipped, not {topic!r}")
        start, stop = max(int(args["start"]), self._node.intake.expected(source)), int(args["stop"])
        if start < stop:
            self._node.caches.skips.skip((topic, source), start, stop, "no member of the group has it")
        return {"start": start, "stop": stop}, []

    # -- how the node is

    def sample(self, now: float) -> None:
        """Note how far every topic has got, so that `status` can give rates."""
        then, before = self._sampled
        if now - then < 1.0:
            return
        counts = self._counts()
        self._rates = {
            topic: (count - before.get(topic, 0)) / (now - then) for topic, count in counts.items()
        }
        self._sampled = (now, counts)

    def _counts(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for (topic, _), seqs in self._node.journal.ledger.published.items():
            counts[topic] = counts.get(topic, 0) + seqs.count
        return counts

    def _status(self, args: dict[str, Any]) -> tuple[Any, list[memoryview]]:
        return self.status(), []

    def status(self) -> dict[str, Any]:
        """How the node is."""
        node, watch = self._node, self._node.core.responses.watch
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "node": node.name,
            "version": __version__,
            "epoch": node.epoch,
            "pid": os.getpid(),
            "listen": node.urls,
            "uptime_s": time.time() - node.started_at,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "rss_bytes": _rss_bytes(),
            "data_dir": str(node.config.node.data_dir.absolute())
            if node.config.journal.kind == "disk"
            else None,
            "journal": {"kind": node.config.journal.kind, **msgspec.to_builtins(node.journal.status())},
            "dead_letters": node.core.letter_office.counts(),
            "paused": node.core.dispatch.pauses.patterns,
            "intake": {"duplicates": node.intake.duplicates, "is_full": node.intake.is_full},
            "bridges": node.bridges.vias.status(),
            "requests": {"open": len(watch), "answered": watch.answered},
            "peers": [{"name": peer.name, "address": peer.connection.peer} for peer in node.peers],
            "topics": self._topics({})[0],
            "subscribers": self._subscribers(),
            "pipelines": self._pipelines.rows(),
            "http": node.http.status() if node.http is not None else None,
            "amqp": node.amqp.status() if node.amqp is not None else None,
        }

    def _topics(self, args: dict[str, Any]) -> tuple[Any, list[memoryview]]:
        counts = self._counts()
        sources: dict[str, int] = {}
        gaps: dict[str, int] = {}
        for (topic, _), seqs in self._node.journal.ledger.published.items():
            sources[topic] = sources.get(topic, 0) + 1
            gaps[topic] = gaps.get(topic, 0) + max(0, len(seqs.ranges()) - 1)
        rows = [
            {
                "topic": t,
                "events": counts[t],
                "rate": self._rates.get(t, 0.0),
                "sources": sources[t],
                "gaps": gaps[t],
            }
            for t in sorted(counts)
        ]
        return rows, []

    def _checkpoint(self, args: dict[str, Any]) -> tuple[Any, list[memoryview]]:
        """How far every source has got whose topic matches a pattern: a place to go on from, as of now."""
        pattern = Pattern(str(args["pattern"]))
        published = self._node.journal.ledger.published
        return {
            s.hex(): seqs.last for (topic, s), seqs in published.items() if seqs and pattern.matches(topic)
        }, []

    def _subscribers(self) -> list[dict[str, Any]]:
        node = self._node
        rows = [self._connected(queue) for queue in node.dispatch.queues.values()]
        present = {queue.name for queue in node.dispatch.queues.values()}
        for name, account in sorted(node.journal.ledger.accounts.items()):
            if name not in present:
                waiting_bytes = node.journal.end - account.floor
                rows.append(
                    {
                        "name": name,
                        "pattern": account.pattern.text,
                        "state": "anycast" if name.startswith(ACCOUNT) else "away",
                        "waiting_bytes": waiting_bytes,
                    }
                    | {"unsettled": 0, "again": 0, "peer": ""}
                )
        return rows

    def _connected(self, queue: Queue) -> dict[str, Any]:
        peer = self._node.peers.get(queue.peer)
        behind = 0 if queue.is_live else self._node.journal.end - queue.cursor.position
        return {
            "name": queue.name,
            "pattern": queue.pattern.text,
            "state": "live" if queue.is_live else "behind",
            "waiting_bytes": behind,
            "unsettled": queue.unsettled.count,
            "again": len(queue.retries),
            "peer": str(peer) if peer else "",
        }

    def _ledger(self, args: dict[str, Any]) -> tuple[Any, list[memoryview]]:
        return self.ledger(), []

    def ledger(self) -> list[dict[str, Any]]:
        """The ledger's rows, each with its verdict."""
        rows = self._node.journal.ledger.rows(self._node.in_hand())
        return [{**msgspec.structs.asdict(row), "balanced": row.balanced} for row in rows]

    def _config(self, args: dict[str, Any]) -> tuple[Any, list[memoryview]]:
        rows = [row for row in describe(self._node.config) if row.name != "security.token"]
        return [{"name": row.name, "value": str(row.value)} for row in rows], []

    # -- the journal, for whoever reads the past

    def _span(self, args: dict[str, Any]) -> tuple[Any, list[memoryview]]:
        journal = self._node.journal
        config = self._node.config
        body: dict[str, Any] = {"epoch": self._node.epoch, "start": journal.start, "end": journal.end}
        if config.journal.kind == "disk":
            body["data_dir"] = str(config.node.data_dir.absolute())
        if "time_us" in args:
            body["position"] = journal.position_at(int(args["time_us"]))
        return body, []

    def _read(self, args: dict[str, Any]) -> tuple[Any, list[memoryview]]:
        """Batches from a position on: body `{pieces: [[position, length]], next}`, then their bytes."""
        journal = self._node.journal
        position = int(args["position"])
        stop = min(int(args.get("stop", journal.end)), journal.end)
        room = min(int(args.get("bytes_max", READ_BYTES_MAX)), self._node.config.limits.frame_bytes_max // 2)
        pieces: list[memoryview] = []
        places: list[tuple[int, int]] = []
        while position < stop and room > 0:
            run = journal.read(position, stop, room)
            if run.entries:
                pieces.append(run.data)
                places.append((run.position, len(run.data)))
                room -= len(run.data)
            position = run.next_position
        return {"pieces": places, "next": position, "end": journal.end}, pieces

    def _records(self, args: dict[str, Any]) -> tuple[Any, list[memoryview]]:
        """Records (outcomes, subscribers) from a position on, each as its frame."""
        journal = self._node.journal
        stop = min(int(args.get("stop", journal.end)), journal.end)
        found, after = journal.records(int(args["position"]), stop, READ_BYTES_MAX)
        body = {"records": [[position, records.encode(record)] for position, record in found], "next": after}
        return body, []

    def _align(self, args: dict[str, Any]) -> tuple[Any, list[memoryview]]:
        """What is held here, level by level: see `reknit.protocol.recovery.alignment`."""
        return msgspec.to_builtins(self._node.caches.aligned.compare(args), builtin_types=(bytes,)), []

    def _find(self, args: dict[str, Any]) -> tuple[Any, list[memoryview]]:
        """Events `[start, stop)` of a source on a topic, as far as they are held: their batches, cut to the range."""
        topic, source = str(args["topic"]), bytes(args["source"])
        batches = self._node.find(topic, source, int(args["start"]), int(args["stop"]))
        body = {"first_held": self._node.journal.first_held(topic, source)}
        return body, [memoryview(batch.data) for batch in batches]


def _rss_bytes() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
