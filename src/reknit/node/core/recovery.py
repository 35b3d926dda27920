"""The recovery machines of a core: which of them takes an input, and how their effects are performed.

machine      file (in protocol/recovery)   decides
caches       cache_service.py              which cache answers a request, and when the answer is complete
losses       loss_reports.py               what is lost for good, and who is told
stored       stored_events.py              which storage acks publishers get
heartbeats   heartbeat_forwarding.py       when subscribers get heartbeats
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol, assert_never

from reknit.batch import Batch
from reknit.config import Config
from reknit.frame import Buffer
from reknit.node.core.keepers import JournalKeeper, Keepers, merged
from reknit.node.core.survey_walks import WALKS_MAX, SurveyPart, SurveyWalks
from reknit.outcome import Code
from reknit.protocol.dispatch.dispatcher import Dispatcher
from reknit.protocol.effects import AppendRecord, Mark, Send
from reknit.protocol.machine import JOURNAL, Peer, PeerLeft, earliest
from reknit.protocol.publish.inputs import RefusedBatch
from reknit.protocol.publish.intake import Intake
from reknit.protocol.recovery import cache_inputs
from reknit.protocol.recovery.cache import EventHolder, answer
from reknit.protocol.recovery.cache_inputs import (
    AskRemote,
    Dismiss,
    Listed,
    ListHeld,
    LookedUp,
    LookUp,
    SendFound,
    SurveyRemote,
)
from reknit.protocol.recovery.cache_service import CacheService
from reknit.protocol.recovery.heartbeat_forwarding import CaughtUp, HeartbeatForwarder
from reknit.protocol.recovery.loss_reports import (
    AllDispatched,
    LossNoted,
    LossReports,
    NeverArrives,
    Opened,
    SkipSource,
)
from reknit.protocol.recovery.rejections import rejections
from reknit.protocol.recovery.search import SearchSettings
from reknit.protocol.recovery.stored_events import CacheSubscribed, StoredEvents
from reknit.seqset import Range, SeqSet
from reknit.store.journal import Journal
from reknit.topic import Pattern
from reknit.wire.codec import encode
from reknit.wire.messages import Settle, Subscribe
from reknit.wire.recovery import Heartbeat, Recover, Require, Survey

log = logging.getLogger("reknit.node")

POSTPONED_MAX: Final = 1024
"""Questions that wait for a commit. Further ones are answered at once, and what is on its way to the disk is denied."""

Input = cache_inputs.Input | Heartbeat | Require | NeverArrives | Subscribe | Settle
Own = LookUp | ListHeld | SendFound | AskRemote | SurveyRemote | Dismiss | SkipSource | LossNoted
"""Effects that are performed here…"""
Effect = Own | AppendRecord | Mark | RefusedBatch | Send
"""…and those that the core performs, like the effects of its other machines."""


class RecoveryShell(Protocol):
    """What recovery needs beside a connection's bytes: further nodes, and what is known of peers."""

    def ask_remote(self, effect: AskRemote) -> None:
        """Ask a further node for events; its answers are inputs."""

    def survey_remote(self, effect: SurveyRemote) -> None:
        """Ask a further node which events it holds; its answers are inputs."""

    def dismiss(self, peer: Peer, code: Code, text: str) -> None:
        """Tell a peer why, and close its connection."""

    def name_of(self, peer: Peer) -> str:
        """The name under which a peer introduced itself."""


class NoFurtherNodes:
    """The shell of a core that has no further nodes to ask."""

    def ask_remote(self, effect: AskRemote) -> None:
        """Never asked for."""

    def survey_remote(self, effect: SurveyRemote) -> None:
        """Never asked for."""

    def dismiss(self, peer: Peer, code: Code, text: str) -> None:
        log.warning("%s broke the protocol: %s: %s", peer, code.name, text)

    def name_of(self, peer: Peer) -> str:
        return str(peer)


class CoreRecovery:
    """The machines, and the journals that answer requests: the node's own first."""

    def __init__(
        self,
        *,
        config: Config,
        journal: Journal,
        dispatch: Dispatcher,
        intake: Intake,
        dead_letter_topic: str,
        send: Callable[[Peer, Sequence[Buffer]], None],
        zero_us: int,
        now_us: Callable[[], int],
    ) -> None:
        # Further caches get half of the peer's timeout, so that the peer is answered in time.
        timeout_s, bytes_max = config.recovery.ask_timeout_s / 2, config.recovery.ask_bytes_max
        self.caches = CacheService(SearchSettings(timeout_s, timeout_s, bytes_max))
        self.losses = LossReports(
            journal.ledger, dispatch.registry, intake.next_number, zero_us, lambda: journal.staged_end
        )
        self.stored = StoredEvents(journal.ledger)
        self.heartbeats = HeartbeatForwarder(dispatch.queues)
        self.holder: JournalKeeper | Keepers = JournalKeeper(journal, now_us)
        self.walks = SurveyWalks()
        self._shell: RecoveryShell = NoFurtherNodes()
        self._journal = journal
        self._dispatch = dispatch
        self._intake = intake
        self._dead_letter_topic = dead_letter_topic
        self._send = send
        self._effects: list[Effect] = []
        self._postponed: deque[tuple[int, LookUp | ListHeld]] = deque()
        """Questions about events that are on their way to the disk, and the position at which these are durable."""

    def attach(self, shell: RecoveryShell, holders: Sequence[EventHolder]) -> None:
        """Use this shell, and search these holders of events after the journal."""
        self._shell = shell
        self.holder = Keepers([self.holder, *holders])

    # -- inputs

    def receive(self, message: Input, peer: Peer, now: float) -> None:
        """From a peer, or about lost events."""
        match message:
            case Subscribe():
                self.losses.receive(message, peer, now)
                if message.is_cache:
                    name = message.name or f"{self._shell.name_of(peer)}/{message.sub}"
                    self.stored.receive(CacheSubscribed(message.sub, name), peer, now)
            case Settle():
                if message.rejected:
                    self._reject(message, peer)
                self.stored.receive(message, peer, now)
            case Heartbeat():
                self.heartbeats.receive(message, peer, now)
            case Require():
                self.stored.receive(message, peer, now)
            case NeverArrives():
                self.losses.receive(message, peer, now)
            case PeerLeft():
                self.losses.receive(message, peer, now)
                self.stored.receive(message, peer, now)
                self.caches.receive(message, peer, now)
                self.walks.left(peer)
                self._postponed = deque(
                    row for row in self._postponed if getattr(row[1], "peer", None) != peer
                )
            case _:
                self.caches.receive(message, peer, now)

    def _reject(self, message: Settle, peer: Peer) -> None:
        queue = self._dispatch.queues.get((peer, message.sub))

        def gets(topic: str) -> bool:
            return queue is not None and queue.pattern.matches(topic) and topic != self._dead_letter_topic

        self._effects += rejections(message, peer, gets)

    def mark(self) -> int:
        """A number that is durable when everything that was rejected by now is."""
        number = self._intake.next_number()
        self._effects.append(Mark(number))
        return number

    def tick(self, now: float) -> None:
        """Time passed."""
        if (part := self.walks.tick(now)) is not None:
            self._list(part, now)
        self.caches.tick(now)

    def next_deadline(self) -> float | None:
        """When `tick` is due next."""
        return earliest([self.caches.next_deadline(), self.walks.next_deadline()])

    def take_effects(self, now: float) -> list[Effect]:
        """The effects to perform, in order. To be called when those of the dispatcher were performed."""
        if self.losses.is_waiting:
            self.losses.receive(Opened(), JOURNAL, now)
        if self._journal.staged_end <= self._journal.end:
            if self.losses.has_untold:
                self.losses.receive(AllDispatched(), JOURNAL, now)
            if self.heartbeats.is_waiting:
                self.heartbeats.receive(CaughtUp(), JOURNAL, now)
        effects, self._effects = self._effects, []
        while self._postponed and self._postponed[0][0] <= self._journal.end:
            effects.append(self._postponed.popleft()[1])
        if self.losses.effects:
            effects += self.losses.take_effects()
        if self.stored.effects:
            effects += self.stored.take_effects()
        if self.caches.effects:
            effects += self.caches.take_effects()
        if self.heartbeats.effects:
            effects += self.heartbeats.take_effects()
        return effects

    def perform(self, effect: Own, now: float) -> None:
        """Perform an effect of these machines."""
        match effect:
            case LookUp(peer=peer, request=request):
                found, covered = answer(self.holder, request)
                if self._is_on_its_way(request, found, covered):
                    self._postpone(effect)
                else:
                    self.caches.receive(LookedUp(request, found, covered), peer, now)
            case ListHeld() if self._can_postpone:
                self._postpone(effect)  # it would name events that can't be returned yet
            case ListHeld(peer=peer, request=survey):
                self._survey(peer, survey, now)
            case SendFound(peer=peer, reply=reply, batches=batches):
                self._send(peer, [encode(reply), *(batch.data for batch in batches)])
            case AskRemote():
                self._shell.ask_remote(effect)
            case SurveyRemote():
                self._shell.survey_remote(effect)
            case Dismiss(peer=peer, code=code, text=text):
                self._shell.dismiss(peer, code, text)
            case SkipSource(source=source, seq=seq):
                self._intake.skip(source, seq)
            case LossNoted(series=(topic, source), start=start, stop=stop, text=text):
                log.error("lost [%d, %d) of %s on %s: %s", start, stop, source.hex(), topic, text)
            case _:
                assert_never(effect)

    def _survey(self, peer: Peer, request: Survey, now: float) -> None:
        walk = self.holder.walk(Pattern(request.pattern), request.age_s)
        part = self.walks.begin(peer, request, walk)
        if part is None:
            text = f"more than {WALKS_MAX} surveys wait for their answers: ask for fewer at a time"
            self._shell.dismiss(peer, Code.RESOURCE_EXHAUSTED, text)
        else:
            self._list(part, now)

    def _list(self, part: SurveyPart, now: float) -> None:
        self.caches.receive(Listed(part.request, merged(part.spans), part.is_last), part.peer, now)

    @property
    def _can_postpone(self) -> bool:
        """Whether events are on their way to the disk, and a question may wait for them."""
        return self._journal.staged_end > self._journal.end and len(self._postponed) < POSTPONED_MAX

    def _postpone(self, effect: LookUp | ListHeld) -> None:
        self._postponed.append((self._journal.staged_end, effect))

    def _is_on_its_way(self, request: Recover, found: list[Batch], covered: list[Range]) -> bool:
        """Whether events that were not found are not on the disk yet: a cache denies only what it does not hold."""
        journal = self._journal
        if not self._can_postpone:
            return False
        published = journal.ledger.published.get((request.topic, request.source), SeqSet())
        sought = SeqSet.from_ranges(part for bounds in covered for part in published.overlap(*bounds))
        missing = sought.difference(SeqSet.from_ranges((batch.first, batch.stop) for batch in found))
        return bool(missing) and missing.last >= journal.first_held(request.topic, request.source)
