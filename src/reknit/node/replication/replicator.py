"""Runs a replication: a session at the source delivers, and a connection publishes at the target.

What is copied, accepted, recovered and given up is decided by the machine, of `reknit.protocol.replication`, which the
core of this node runs as one of its parts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, Protocol, assert_never

from reknit.batch import Batch
from reknit.config import Config
from reknit.connection.remote_cache import RemoteCache
from reknit.node.core.core import Core
from reknit.node.recovery.remote_replies import RemoteReplies
from reknit.node.replication.remote_session import OnLost
from reknit.node.replication.target_connection import TargetConnection
from reknit.protocol.machine import Peer
from reknit.protocol.recovery.cache_inputs import AskRemote, Remote
from reknit.protocol.replication.bridge_replication import AskVisited, Effect, Input, SendToTarget
from reknit.protocol.replication.gap import Gap
from reknit.protocol.replication.replica_publisher import ReplicaPublisher, ReportLost, SendBatches
from reknit.protocol.replication.replication import (
    AcceptAtSource,
    BatchesTaken,
    ConfirmLoss,
    FailAtSource,
    LossTold,
    RejectAtSource,
    TargetDown,
    TargetUp,
)
from reknit.protocol.replication.told_losses import Loss
from reknit.protocol.subscribe.inputs import LossReport
from reknit.transport.connection import Handler
from reknit.wire.codec import Frames, Item
from reknit.wire.links import Skip, Via
from reknit.wire.messages import Ack, Expect, Go, Hold, Refuse, Welcome

log = logging.getLogger("reknit.node")

FAIL_S: Final = 1.0
"""When the source delivers again what was not copied in time, if it is not past its ttl by the source's own clock."""


class Replicates(Protocol):
    """A machine that replicates: `Replication`, or `BridgeReplication`."""

    @property
    def publisher(self) -> ReplicaPublisher:
        """Publishes at the target."""

    def receive(self, message: Any, peer: Peer, now: float) -> None:
        """From the source or the target, or about them."""

    def tick(self, now: float) -> None:
        """Time passed."""

    def next_deadline(self) -> float | None:
        """When `tick` is due next."""

    def take_effects(self) -> list[Any]:
        """The effects to perform, in order."""


class Runner(Protocol):
    """The node that runs replications: its core, and a function that performs all effects."""

    @property
    def core(self) -> Core:
        """The core, which runs them as parts."""

    def run_machines(self) -> None:
        """Perform the effects of all machines."""


class Replicator:
    """One replication from the node at `url`. With a `handler`, the target is the node of this process."""

    def __init__(
        self,
        machine: Replicates,
        name: str,
        *,
        config: Config,
        runner: Runner,
        source_url: str,
        target_url: str = "",
        handler: Handler | None = None,
        token: str = "",
    ) -> None:
        self._machine = machine
        self._name = name
        self._runner = runner
        self._target = TargetConnection(target_url, name, self, config=config, handler=handler)
        self._cache = RemoteCache(source_url, name, config, token)
        self._now = asyncio.get_running_loop().time
        self._effects: list[Effect] = []
        self._room = asyncio.Event()
        self._room.set()
        self.confirm_lost: OnLost = lambda report: None
        """Confirms a loss at the source, which reports it again whenever it is connected until then."""
        self.question: AskVisited | None = None
        """What the source has to be asked before more is taken."""
        self._key = f"{name} of {source_url}"
        runner.core.parts.add(self._key, self)

    @property
    def problem(self) -> str:
        """Why the target can't be reached; empty while it can."""
        return self._target.problem

    async def open(self, wait_s: float = 1.0) -> None:
        """Connect to the target, trying for `wait_s`. Raises `NotConnected`, `RemoteError`."""
        await self._target.open(wait_s)

    async def close(self) -> None:
        """Disconnect. What is not durable at the target is not accepted at the source, and is delivered again."""
        self._runner.core.parts.remove(self._key)
        await self._cache.close()
        await self._target.close()

    # -- the source's side

    def take(self, batches: list[Batch]) -> None:
        """The source delivered these."""
        self.feed(BatchesTaken(batches))

    def report(self, reports: list[LossReport]) -> None:
        """The source reported these losses, after what it delivered before."""
        for report in reports:
            gap = Gap((report.topic, report.source), report.start, report.stop)
            self.feed(LossTold(Loss(gap, report.reason)))

    def tell(self, via: Via) -> None:
        """Tell the target which nodes a source has passed, before its batches."""
        self._target.send(via)

    async def room(self) -> None:
        """Return when there is room for more."""
        await self._room.wait()

    def feed(self, message: Input, peer: Peer = "") -> None:
        """An input of the machine; its effects are performed."""
        self._machine.receive(message, peer, self._now())
        self._collect()
        self._runner.run_machines()

    def _reply(self, message: Remote, url: Peer) -> None:
        self.feed(message, url)

    # -- the target's side

    def connected(self, welcome: Welcome) -> None:
        """The target is there, or there again."""
        self.feed(TargetUp(welcome.node))

    def disconnected(self) -> None:
        """The target is away. The connection is being opened again."""
        self.feed(TargetDown())

    def received(self, items: list[Item]) -> None:
        """Messages came from the target."""
        now = self._now()
        for item in items:
            match item:
                case Ack() | Expect() | Refuse() | Hold() | Go():
                    self._machine.receive(item, self._target.url, now)
                case Frames():
                    log.error("a publisher received batches: dropped")
                case _:
                    log.debug("ignored %r", item)
        self._collect()
        self._runner.run_machines()

    # -- a part of the core

    def receive(self, message: Any, peer: Peer, now: float) -> None:
        """What this node's journal and connections report does not concern a replication."""

    def tick(self, now: float) -> None:
        """Time passed."""
        self._machine.tick(now)
        self._collect()

    def next_deadline(self) -> float | None:
        """When `tick` is due next."""
        return self._machine.next_deadline()

    @property
    def is_due(self) -> bool:
        """Whether there are effects to perform."""
        return bool(self._effects)

    def _collect(self) -> None:
        self._effects += self._machine.take_effects()
        if self._machine.publisher.has_room:
            self._room.set()
        else:
            self._room.clear()

    def perform(self, now: float) -> None:
        """Perform the effects that wait."""
        effects, self._effects = self._effects, []
        for effect in effects:
            self._perform(effect, now)

    def _perform(self, effect: Effect, now: float) -> None:
        match effect:
            case SendBatches(batches=batches):
                self._target.send_buffers([batch.data for batch in batches])
            case SendToTarget(message=message):
                self._target.send(message)
            case AcceptAtSource(batches=batches):
                _settle(batches, lambda batch: batch.accept())
            case RejectAtSource(batches=batches, code=code, text=text):
                log.error("%s: %d batches are refused: %s", self._name, len(batches), text)
                _settle(batches, lambda batch: batch.reject(code, text))
            case FailAtSource(batches=batches, code=code, text=text):
                _settle(batches, lambda batch: batch.fail(FAIL_S, code, text))
            case AskRemote(search=search):
                ask = (effect.number, effect.series, effect.ranges, effect.bytes_max)
                self._cache.recover(RemoteReplies(search, self._reply), *ask, deep=True)
            case ReportLost(series=series, start=start, stop=stop, text=text, is_ahead=is_ahead):
                self._target.send(Skip(*series, start, stop, text, is_ahead))
            case ConfirmLoss(loss=loss):
                gap = loss.gap
                self.confirm_lost(LossReport(*gap.series, gap.start, gap.stop, loss.reason))
            case AskVisited():
                self.question = effect
            case _:
                assert_never(effect)


def _settle(batches: list[Batch], settle: Callable[[Batch], object]) -> None:
    """Settle the batches that the source delivered. Recovered ones were not delivered."""
    for batch in batches:
        if batch.settle is not None:
            settle(batch)
