"""Copies the events of one node, the source, to another, the target: what a relay and a bridge have in common.

    BatchesTaken            the source delivered them: SendBatches
    Ack                     of the target: AcceptAtSource, for what is durable there
    Refuse                  RejectAtSource
    Expect                  SendBatches; or AskRemote, for what the source delivered before and does not deliver again
    Remote…                 the source's answers: SendBatches, or ReportLost for what nobody has
    LossTold                ReportLost, when everything before it is durable at the target; ConfirmLoss when that is
    TargetDown, Hold        batches wait; one whose ttl runs out before it was sent: FailAtSource
    TargetUp, Go            everything that is not durable at the target is sent (again)

Only what is durable at the target is accepted at the source, so nothing is missed whichever of the two is killed.
"""

from __future__ import annotations

from itertools import takewhile
from typing import assert_never

import msgspec

from reknit.batch import Batch
from reknit.outcome import Code
from reknit.protocol.machine import Machine, Peer
from reknit.protocol.recovery.cache_inputs import (
    AskRemote,
    Remote,
    RemoteAnswered,
    RemoteFound,
    RemoteListed,
    RemoteUnreachable,
)
from reknit.protocol.replication import gap_recovery, replica_publisher
from reknit.protocol.replication.batch_expiry import EXPIRED_ON_THE_WAY, BatchExpiry
from reknit.protocol.replication.gap import Gap
from reknit.protocol.replication.gap_recovery import FillGap, GapRecovery
from reknit.protocol.replication.replica_publisher import (
    BatchesRefused,
    BatchesStored,
    GapFound,
    ReplicaPublisher,
    ReportLost,
    SendBatches,
)
from reknit.protocol.replication.told_losses import Loss, ToldLosses
from reknit.wire.messages import Ack, Expect, Go, Hold, Refuse


class BatchesTaken(msgspec.Struct, frozen=True):
    """The source delivered these batches."""

    batches: list[Batch]


class LossTold(msgspec.Struct, frozen=True):
    """The source reported that events are lost, after the batches that it delivered before."""

    loss: Loss


class TargetUp(msgspec.Struct, frozen=True):
    """The target is connected, for the first time or again; its name."""

    node: str = ""


class TargetDown(msgspec.Struct, frozen=True):
    """The target is away."""


class ConfirmLoss(msgspec.Struct, frozen=True):
    """The source need not report this loss again."""

    loss: Loss


class AcceptAtSource(msgspec.Struct, frozen=True):
    """The source need not keep these for the target any more. Those that were recovered it did not deliver."""

    batches: list[Batch]


class RejectAtSource(msgspec.Struct, frozen=True):
    """The target will never take these: they end at the source, and why."""

    batches: list[Batch]
    code: int
    text: str


class FailAtSource(msgspec.Struct, frozen=True):
    """These were not copied in time: the source decides what becomes of them."""

    batches: list[Batch]
    code: int
    text: str


FromTarget = Ack | Expect | Refuse | Hold | Go
Input = BatchesTaken | LossTold | TargetUp | TargetDown | FromTarget | Remote
Effect = SendBatches | ReportLost | AskRemote | ConfirmLoss | AcceptAtSource | RejectAtSource | FailAtSource


class Replication:
    """From one source to one target, which is away at first. Without `expiry`, events are copied whatever their ttl."""

    def __init__(
        self,
        url: str,
        *,
        window_bytes: int,
        timeout_s: float,
        ask_bytes_max: int,
        expiry: BatchExpiry | None = None,
    ) -> None:
        self.publisher = ReplicaPublisher(window_bytes)
        self.publisher.hold()
        self.events = 0
        """How many events are durable at the target."""
        self._gaps = GapRecovery(url, timeout_s=timeout_s, bytes_max=ask_bytes_max)
        self._losses = ToldLosses()
        self._expiry = expiry
        self._unsent: list[tuple[float, Batch]] = []
        """(deadline, batch) of those that were never sent."""
        self._effects: list[Effect] = []

    # -- the contract

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """From the source or the target, or about them."""
        match message:
            case BatchesTaken(batches=batches):
                self._put(batches, now)
            case LossTold(loss=loss):
                self._losses.add(loss)
            case TargetUp():
                self._send_all(now)
            case TargetDown():
                self.publisher.hold()
                self._losses.tell_all_again()
            case Go():
                self._send_all(now)
            case Ack(source=source, seq=seq):
                self.publisher.receive(message, peer, now)
                self.confirm(self._losses.recorded(source, seq))
            case Expect(source=source, seq=seq):
                self.publisher.receive(message, peer, now)
                self._recover_before_loss(source, seq, now)
            case Refuse() | Hold():
                self.publisher.receive(message, peer, now)
            case RemoteFound() | RemoteAnswered() | RemoteListed() | RemoteUnreachable():
                self._gaps.receive(message, peer, now)
            case _:
                assert_never(message)
        self._run(now)

    def tick(self, now: float) -> None:
        """Ask the source again, and give up batches whose ttl ran out."""
        self._gaps.tick(now)
        self._expire(now)
        self._run(now)

    def next_deadline(self) -> float | None:
        """When the source is asked again, or a batch that waits expires."""
        due = [deadline for deadline, _ in self._unsent]
        asked = self._gaps.next_deadline()
        return min([*due, asked] if asked is not None else due, default=None)

    def take_effects(self) -> list[Effect]:
        """The effects to perform, in order."""
        effects, self._effects = self._effects, []
        return effects

    # -- batches

    def accept(self, batches: list[Batch]) -> None:
        """The target has these, or need not get them."""
        if batches:
            self._effects.append(AcceptAtSource(batches))

    def reject(self, batches: list[Batch], code: int, text: str) -> None:
        """The target must not get these."""
        if batches:
            self._effects.append(RejectAtSource(batches, code, text))

    def confirm(self, losses: list[Loss]) -> None:
        """The target knows of these, or need not."""
        self._effects += [ConfirmLoss(loss) for loss in losses]

    def _put(self, batches: list[Batch], now: float) -> None:
        if self._expiry is not None and self.publisher.is_held:
            rows = [(self._expiry.deadline(batch, now), batch) for batch in batches]
            self._unsent += [(deadline, batch) for deadline, batch in rows if deadline is not None]
        self.publisher.put(batches)

    def _send_all(self, now: float) -> None:
        self._expire(now)
        self._unsent.clear()
        self.publisher.resend()

    def _expire(self, now: float) -> None:
        over = [batch for deadline, batch in self._unsent if deadline <= now]
        self._unsent = [row for row in self._unsent if row[0] > now]
        gone = [batch for batch in over if self.publisher.take_out(batch)]
        if gone:
            self._effects.append(FailAtSource(gone, Code.DEADLINE_EXCEEDED, EXPIRED_ON_THE_WAY))

    def _run(self, now: float) -> None:
        while effects := self._next_effects():
            for effect in effects:
                match effect:
                    case SendBatches() | ReportLost() | AskRemote():
                        self._effects.append(effect)
                    case BatchesStored(batches=batches):
                        self.events += sum(batch.count for batch in batches)
                        self.accept(batches)
                    case BatchesRefused(batches=batches, code=code, text=text):
                        self.reject(batches, code, text)
                    case GapFound(gap=gap):
                        self._gaps.recover(gap, now)
                    case FillGap():
                        self._fill(effect, now)
                    case _:
                        assert_never(effect)

    def _next_effects(self) -> list[replica_publisher.Effect | gap_recovery.Effect]:
        effects = [*self.publisher.take_effects(), *self._gaps.take_effects()]
        if not effects:
            self._tell_losses()
            effects = [*self.publisher.take_effects()]
        return effects

    def _tell_losses(self) -> None:
        """Tell the target of losses that come next: it would not take anything before them any more."""
        if not self._losses or self.publisher.is_held:
            return
        for loss in self._losses.untold():
            series, start, stop = loss.gap.series, loss.gap.start, loss.gap.stop
            is_next = not self.publisher.waits_before(series[1], start)
            if is_next and not self._gaps.is_open(series):
                self._losses.tell(series[1])
                self.publisher.skip(series, start, stop, [], self._gaps.text, loss.is_ahead)

    def _recover_before_loss(self, source: bytes, seq: int, now: float) -> None:
        """The target, which was told of a loss, misses events before it that it had before, or that came another way."""
        loss = self._losses.first(source)
        if loss is not None and seq < loss.gap.start and source not in self.publisher.unacked_sources():
            self._losses.tell_again(source)
            self._gaps.recover(Gap(loss.gap.series, seq, loss.gap.start), now)

    def _fill(self, fill: FillGap, now: float) -> None:
        """What was found and is past its ttl is not copied: the target continues after it."""
        expiry = self._expiry
        if expiry is None:
            self.publisher.fill(fill.gap, fill.found, self._gaps.text)
            return
        over = list(takewhile(lambda batch: expiry.is_over(batch, now), fill.found))
        rest = list(takewhile(lambda batch: not expiry.is_over(batch, now), fill.found[len(over) :]))
        if over:
            self.publisher.skip(fill.gap.series, fill.gap.start, over[-1].stop, rest, EXPIRED_ON_THE_WAY)
        else:
            self.publisher.fill(fill.gap, rest, self._gaps.text)


_MACHINE: type[Machine[Input, Effect]] = Replication
