"""The figures of a node: its status, its topics and subscribers, and its ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from reknit import environment
from reknit.config import Config
from reknit.ledger import ANYCAST, Held
from reknit.node.admin.pipelines import Pipelines
from reknit.node.core.core import Core
from reknit.node.peers.peers import Peers
from reknit.protocol.dispatch.queue import Queue
from reknit.topic import Pattern
from reknit.trust.gate import Gate
from reknit.version import __version__

SAMPLE_S: Final = 1.0
DOORS: Final = ("http", "amqp")
"""The gateways that the status shows, also where they are off."""


class HasStatus(Protocol):
    """A part of the node, as the status shows it."""

    def status(self) -> dict[str, Any]:
        """Its figures."""


class NodeFigures:
    """The figures of one node; `node.figures`."""

    def __init__(
        self,
        *,
        config: Config,
        node_name: str,
        epoch: str,
        urls: Sequence[str],
        started_at: float,
        core: Core,
        gate: Gate,
        peers: Peers,
        bridges: HasStatus,
        doors: Mapping[str, HasStatus],
        held_by: Callable[[str], Held | None],
    ) -> None:
        self.pipelines = Pipelines()
        self._config = config
        self._identity = {"node": node_name, "version": __version__, "epoch": epoch}
        self._urls = urls
        self._started_at = started_at
        self._core = core
        self._gate = gate
        self._peers = peers
        self._bridges = bridges
        self._doors = doors
        self._held_by = held_by
        """For an account of the ledger, the events in flight."""
        self._walking = asyncio.Lock()
        """One walk through the ledger at a time: each lets the node go on, many at once would not."""
        self._rates: dict[str, float] = {}
        self._sampled: tuple[float, dict[str, int]] = (0.0, {})

    def sample(self, now: float) -> None:
        """Note the number of events of every topic, so that `status` can give rates."""
        then, before = self._sampled
        if now - then < SAMPLE_S:
            return
        counts = {topic: totals.events for topic, totals in self._core.journal.ledger.topics.items()}
        self._rates = {
            topic: (count - before.get(topic, 0)) / (now - then) for topic, count in counts.items()
        }
        self._sampled = (now, counts)

    def status(self) -> dict[str, Any]:
        """The node's state, as `reknit status` shows it."""
        config, core = self._config, self._core
        process = environment.current().process()
        is_disk, requests = config.journal.kind == "disk", core.responses.watch
        return {
            **self._identity,
            "pid": process.pid,
            "listen": list(self._urls),
            "uptime_s": environment.monotonic() - self._started_at,
            "cpu_s": process.cpu_s,
            "rss_bytes": process.rss_bytes,
            "data_dir": str(config.node.data_dir.absolute()) if is_disk else None,
            "journal": self._journal(),
            "dead_letters": {
                **core.dead_letter_admin.counts(),
                "stopped": dict(core.dead_letter_guard.status()),
            },
            "paused": core.dispatch.pauses.patterns,
            "intake": {
                "duplicates": core.intake.duplicates,
                "is_full": core.intake.is_full,
                "why": core.intake.stopped,
            },
            "refused": self._gate.refusals.totals(),
            "quotas": self._quotas(),
            "authentication": self._gate.attempts.totals(),
            "bridges": self._bridges.status(),
            "requests": {"open": len(requests), "answered": requests.answered},
            "peers": [{"name": peer.name, "address": peer.connection.peer} for peer in self._peers],
            "topics": self.topics(),
            "subscribers": self._subscribers(),
            "pipelines": self.pipelines.rows(),
            **dict.fromkeys(DOORS),
            **{name: door.status() for name, door in self._doors.items()},
        }

    def _journal(self) -> dict[str, Any]:
        journal = self._core.journal
        totals = msgspec.to_builtins(journal.status())
        return {"kind": self._config.journal.kind, "is_broken": bool(journal.problem), **totals}

    def _quotas(self) -> dict[str, dict[str, int]]:
        """By identity: how often it had to wait for its quota, and its connections, if there is a quota for them."""
        rows: dict[str, dict[str, int]] = {}
        for name, count in self._gate.connections.totals().items():
            rows.setdefault(name, {})["connections"] = count
        for name, count in self._core.quotas.rates.waits.items() if self._core.quotas is not None else ():
            rows.setdefault(name, {})["waits"] = count
        return dict(sorted(rows.items()))

    def topics(self) -> list[dict[str, Any]]:
        """Every topic, with its events, rate, sources and gaps."""
        return [
            {
                "topic": topic,
                "events": totals.events,
                "rate": self._rates.get(topic, 0.0),
                "sources": totals.sources,
                "gaps": totals.gaps,
            }
            for topic, totals in sorted(self._core.journal.ledger.topics.items(), key=lambda item: item[0])
        ]

    def _subscribers(self) -> list[dict[str, Any]]:
        journal, queues = self._core.journal, self._core.dispatch.queues
        rows = [self._connected(queue) for queue in queues.values()]
        present = {queue.name for queue in queues.values()}
        for name, account in sorted(journal.ledger.accounts.items()):
            if name not in present:
                rows.append(
                    {
                        "name": name,
                        "pattern": account.pattern.text,
                        "state": "anycast" if name.startswith(ANYCAST) else "away",
                        "waiting_bytes": journal.end - account.floor,
                    }
                    | {"unsettled": 0, "again": 0, "peer": ""}
                )
        return rows

    def _connected(self, queue: Queue) -> dict[str, Any]:
        peer = self._peers.get(queue.peer)
        behind = 0 if queue.is_live else self._core.journal.end - queue.cursor.position
        return {
            "name": queue.name,
            "pattern": queue.pattern.text,
            "state": "live" if queue.is_live else "behind",
            "waiting_bytes": behind,
            "unsettled": queue.unsettled.count,
            "again": len(queue.retries),
            "peer": str(peer) if peer else "",
        }

    async def ledger(self, args: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """The ledger's rows, each with whether it balances. The node goes on with its work meanwhile.

        `topic` (a pattern) and `unbalanced` leave rows out; `rows_max` and `after` (a subscriber and a topic) give
        them in pages.
        """
        args = args or {}
        pattern = Pattern(str(args["topic"])) if args.get("topic") else None
        subscriber, topic = args.get("after") or ("", "")
        rows: list[dict[str, Any]] = []
        async with self._walking:
            for row in self._core.journal.ledger.walk(self._held_by, pattern, (str(subscriber), str(topic))):
                if row is None:
                    await asyncio.sleep(0)
                elif not (args.get("unbalanced") and row.balanced):
                    rows.append({**msgspec.structs.asdict(row), "balanced": row.balanced})
                    if len(rows) == args.get("rows_max"):
                        break
        return rows
