"""The figures of a node: its status, its topics and subscribers, and its ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from reknit import environment
from reknit.config import Config
from reknit.ledger import ANYCAST, Account
from reknit.ledger.topics import TopicTotals
from reknit.ledger.walk import HeldBy
from reknit.node.admin.inspection.figure_history import FigureHistory
from reknit.node.admin.ledger_reader import EVERY_OTHER, LedgerReader, LedgerSums
from reknit.node.admin.pipelines import Pipelines
from reknit.node.admin.topic_rates import TopicRates
from reknit.node.core.core import Core
from reknit.node.peers.peers import Peers
from reknit.protocol.queues.queue import Queue
from reknit.protocol.queues.shared_queue import SharedQueue
from reknit.trust.gate import Gate
from reknit.trust.rules import EVERYTHING
from reknit.version import __version__

OWED_ROWS_MAX: Final = 5_000
"""With more durable subscribers times series than this, the status does not count what each is owed."""
DOORS: Final = ("http", "amqp")
"""The gateways that the status shows, also where they are off."""


class HasStatus(Protocol):
    """A part of the node, as the status shows it."""

    def status(self) -> dict[str, Any]:
        """Its figures."""


@runtime_checkable
class Shown(HasStatus, Protocol):
    """Runs beside the node, and has a place in its status."""

    shown_as: str
    """The name of that place."""


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
        held_by: HeldBy,
        commits: HasStatus,
        anycast_repeats: Callable[[], tuple[int, int]],
    ) -> None:
        self.pipelines = Pipelines()
        self._commits = commits
        self.shown: dict[str, HasStatus] = {}
        """What runs beside the node, by its place in the status."""
        self._config = config
        self._identity = {"node": node_name, "version": __version__, "epoch": epoch}
        self._urls = urls
        self._started_at = started_at
        self._core = core
        self._gate = gate
        self._peers = peers
        self._bridges = bridges
        self._doors = doors
        self._anycast_repeats = anycast_repeats
        self._ledger = LedgerReader(core.journal.ledger, held_by, config.limits.metric_rows_max)
        self._rates = TopicRates(core.journal.ledger)
        self._is_watched = bool(config.http.listen) and config.http.console
        """Whether there is a page that shows the last minutes."""
        self.history = FigureHistory(self._ledger.sums)

    def sample(self, now: float) -> None:
        """Begin the next period of the rates in `status`, if this one has lasted long enough."""
        self._rates.sample(now)
        if self._is_watched:
            self.history.sample(now)

    def status(self, topics: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        """The node's state, as `reknit status` shows it; with these rows of topics, or with all."""
        shown = self.topics() if topics is None else topics
        return {**self.summary(), "topics": shown, "subscribers": self.subscribers()}

    def summary(self) -> dict[str, Any]:
        """The node's state without what there may be a hundred thousand of: topics and subscribers."""
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
            "repeats": self._repeats(),
            "refused": self._gate.refusals.totals(),
            "quotas": self._quotas(),
            "authentication": self._gate.attempts.totals(),
            "bridges": self._bridges.status(),
            "requests": {"open": len(requests), "answered": requests.answered},
            "peers": [{"name": peer.name, "address": peer.connection.peer} for peer in self._peers],
            "events_s": self._rates.total,
            "pipelines": self.pipelines.rows(),
            **dict.fromkeys(DOORS),
            **{name: part.status() for name, part in [*self._doors.items(), *self.shown.items()]},
        }

    def _journal(self) -> dict[str, Any]:
        journal = self._core.journal
        totals = msgspec.to_builtins(journal.status())
        kind = self._config.journal.kind
        return {"kind": kind, "is_broken": bool(journal.problem), "commits": self._commits.status(), **totals}

    def rights(self, name: str) -> dict[str, Any]:
        """Who somebody is for this node, and what they may do."""
        gate = self._gate
        is_free = gate.is_open or gate.rules.is_free(name)
        return {
            "name": name,
            "is_open": gate.is_open,
            "is_admin": is_free or gate.is_admin(name),
            "may_watch": is_free or gate.may_observe(name),
            "may_read": is_free or gate.may_subscribe(name, EVERYTHING),
            "publishes": ["**"] if is_free else [one.text for one in gate.rules.patterns(name, "publish")],
        }

    def _repeats(self) -> dict[str, int]:
        """How many events came back or were sent again since the node started."""
        released, redelivered = self._core.dispatch.repeats
        released_paths, forwarded_again = self._anycast_repeats()
        return {
            "released": released + released_paths,
            "redelivered": redelivered,
            "forwarded_again": forwarded_again,
        }

    def _quotas(self) -> dict[str, dict[str, int]]:
        """By identity: how often it had to wait for its quota, and its connections, if there is a quota for them."""
        rows: dict[str, dict[str, int]] = {}
        for name, count in self._gate.connections.totals().items():
            rows.setdefault(name, {})["connections"] = count
        for name, count in self._core.quotas.rates.waits.items() if self._core.quotas is not None else ():
            rows.setdefault(name, {})["waits"] = count
        return dict(sorted(rows.items()))

    def topics(self, names: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """These topics or every one, each with its events, rate, sources and gaps."""
        every, none = self._core.journal.ledger.topics, TopicTotals()
        return [
            self._topic(name, every.get(name, none)) for name in (sorted(every) if names is None else names)
        ]

    def _topic(self, topic: str, totals: TopicTotals) -> dict[str, Any]:
        return {
            "topic": topic,
            "events": totals.events,
            "rate": self._rates.of(topic),
            "sources": totals.sources,
            "gaps": totals.gaps,
        }

    def subscribers(self) -> list[dict[str, Any]]:
        """Every subscriber, connected or away, with what it waits for."""
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
                        "owed": self._owed(account),
                    }
                    | {"unsettled": 0, "again": 0, "peer": "", "members": 0}
                )
        return rows

    def _owed(self, account: Account) -> int | None:
        """How many events a durable subscriber has still to get or to settle; None if counting would take long."""
        published = self._core.journal.ledger.published
        if len(published) * len(self._core.journal.ledger.accounts) > OWED_ROWS_MAX:
            return None
        return sum(
            account.owed(series, seqs).difference(account.ended(series)).count
            for series, seqs in published.items()
            if account.pattern.matches(series[0])
        )

    def _connected(self, queue: Queue) -> dict[str, Any]:
        peer = None if isinstance(queue, SharedQueue) else self._peers.get(queue.peer)
        members = len(queue.members) if isinstance(queue, SharedQueue) else 0
        account = self._core.journal.ledger.accounts.get(queue.name) if queue.name else None
        owed = queue.unsettled.count if queue.is_live else None
        if account is not None:
            owed = self._owed(account)
        behind = 0 if queue.is_live else self._core.journal.end - queue.cursor.position
        return {
            "name": queue.name,
            "pattern": queue.pattern.text,
            "state": "live" if queue.is_live else "behind",
            "waiting_bytes": behind,
            "owed": owed,
            "unsettled": queue.unsettled.count,
            "again": len(queue.retries),
            "peer": str(peer) if peer else "",
            "members": members,
        }

    async def ledger(self, args: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """The ledger's rows, each with whether it balances. The node goes on with its work meanwhile."""
        return await self._ledger.rows(args or {})

    async def sums(self) -> LedgerSums:
        """The ledger in a bounded number of rows, which may be a while old where it takes long to add up."""
        return await self._ledger.sums()

    async def for_metrics(self) -> tuple[dict[str, Any], LedgerSums]:
        """The status and the ledger, with a bounded number of topics."""
        return self.status(self._some_topics()), await self._ledger.sums()

    def _some_topics(self) -> list[dict[str, Any]]:
        """The topics that are known for longest, and one row for all others."""
        every, count = self._core.journal.ledger.topics, self._config.limits.metric_rows_max
        rows = [self._topic(topic, totals) for topic, totals in islice(every.items(), count)]
        if len(every) > count:
            others = TopicTotals()
            for totals in islice(every.values(), count, None):
                others.add(totals)
            rows.append(self._topic(EVERY_OTHER, others))
        return rows
