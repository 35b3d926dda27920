"""A node's own responses: to requests that it can't deliver, or that nobody answers.

Only events with attributes are read, so plain events cost nothing here. A response is an event like any
other, from a source of the node's own. A response that can't be delivered is a dead letter, and is not answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from reknit.address import Address
from reknit.batch import FLAG_ATTRIBUTES, TYPE_REQUEST, TYPE_RESPONSE, Batch, Head
from reknit.config import Config
from reknit.envelope.attributes import RULES, Attributes, Format, Kind, response_to
from reknit.envelope.columns import fields_of, problem_with, read_attributes, read_loosely
from reknit.envelope.ids import IdMaker, check_id
from reknit.envelope.status import to_status
from reknit.errors import Gone, InvalidAttributes
from reknit.frame import Buffer
from reknit.lineage import lasting_source
from reknit.outcome import CODE_OF, Code, Reason
from reknit.protocol.effects import DeadLetter
from reknit.protocol.machine import JOURNAL, Peer
from reknit.protocol.publish.admission import Refusal
from reknit.protocol.publish.inputs import RefusedBatch
from reknit.protocol.rpc.open_requests import (
    OpenRequests,
    RequestAccepted,
    RequestsDelivered,
    RequestsForwarded,
    RequestsUndeliverable,
    Respond,
    ResponseAccepted,
    answer_code,
)
from reknit.store.journal import Journal

RESUME_S: Final = (600.0, 60.0, 10.0, 1.0)
"""How far back a node looks for open requests when it starts: the longest span of at most `RESUME_BYTES_MAX`."""
RESUME_BYTES_MAX: Final = 64 << 20
ADDRESSES: Final = "up/"
_KINDS: Final = (TYPE_REQUEST, TYPE_RESPONSE)

MayBe = Callable[[Peer, Address], bool]
"""Says whether events from an address may come from a peer."""


class Responses:
    """Watches the open requests on one node. `now` is the node's monotonic time."""

    def __init__(
        self, name: str, journal: Journal, config: Config, zero_us: int, now_us: Callable[[], int]
    ) -> None:
        self.watch = OpenRequests(config.rpc.watched_max)
        self._name = name
        self._journal = journal
        self._zero_us = zero_us
        """The time of day, in microseconds since 1970, at which `now` was 0."""
        self._now_us = now_us
        self._ids = IdMaker(lambda: now_us() // 1000)
        future_s_max = config.limits.future_s_max
        self._ahead_ms_max = int(future_s_max * 1000) if future_s_max else 1 << 48
        self.effects: list[Respond | RefusedBatch | DeadLetter] = []
        """What `take_effects` returns next."""
        self._resume()

    def _resume(self) -> None:
        """Find the requests that were open when the node stopped: they may have been delivered."""
        journal = self._journal
        if not any(topic.startswith(ADDRESSES) for topic in journal.topics()):
            return
        starts = [journal.position_at(self._now_us() - int(age_s * 1e6)) for age_s in RESUME_S]
        position = next((one for one in starts if journal.end - one <= RESUME_BYTES_MAX), journal.end)
        while position < journal.end:
            try:
                run = journal.read(position)
            except Gone as gone:
                position = gone.first_held
                continue
            for index, entry in enumerate(run.entries):
                if entry.head.type in _KINDS:
                    self._note(Batch.parse(run.cut(index, index + 1)), is_delivered=True)
            position = run.next_position

    # -- intake

    def inspect(self, batch: Batch) -> Refusal | None:
        """Why a batch with attributes is refused."""
        found = problem_with(batch, self._now_us() // 1000, self._ahead_ms_max)
        if found is not None:
            code, reason, text = found
            return Refusal(code, text, reason)
        if batch.head.type == TYPE_REQUEST and self.watch.is_full:
            text = f"the node already watches {len(self.watch)} requests (rpc.watched_max)"
            return Refusal(Code.RESOURCE_EXHAUSTED, text, Reason.EGRESS_FULL)
        return None

    def staged(self, data: Buffer, heads: Iterable[Head]) -> None:
        """These batches were taken in: remember their requests, and forget the requests that they answer."""
        at = 0
        for head in heads:
            if head.type in _KINDS and head.flags & FLAG_ATTRIBUTES:
                self._note(Batch(head, memoryview(data)[at : at + head.length]))
            at += head.length

    def _note(self, batch: Batch, is_delivered: bool = False) -> None:
        try:
            several = read_attributes(batch)
        except InvalidAttributes:  # stored by an older node, which did not check
            return
        now = (self._now_us() - self._zero_us) / 1e6
        for seq, one in enumerate(several, batch.first):
            if one.type is Kind.RESPONSE:
                if one.reqid is not None:
                    self.watch.receive(ResponseAccepted(one.reqid, one.source), JOURNAL, now)
                continue
            deadline = self._deadline(one)
            if not is_delivered or deadline > now:
                series = (batch.topic, batch.source)
                self.watch.receive(RequestAccepted(one, series, seq, deadline, is_delivered), JOURNAL, now)

    def _deadline(self, request: Attributes) -> float:
        """When a request expires, on the node's clock. One that was made in the future counts from now on."""
        made_ms = min(request.time_ms, self._now_us() // 1000)
        return ((made_ms + request.ttl_ms) * 1000 - self._zero_us) / 1e6

    # -- delivery

    def delivered(self, heads: Iterable[Head]) -> None:
        """These batches are delivered to a subscriber of exactly their topic."""
        for head in heads:
            if head.type == TYPE_REQUEST:
                self.delivered_range(head.topic, head.source, head.first, head.stop)

    def delivered_range(self, topic: str, source: bytes, start: int, stop: int) -> None:
        """Events `[start, stop)` are delivered to a subscriber of exactly their topic."""
        self.watch.receive(RequestsDelivered((topic, source), start, stop), JOURNAL, 0.0)

    def forwarded(self, head: Head) -> None:
        """This batch is forwarded to another node."""
        if head.type == TYPE_REQUEST:
            self.watch.receive(
                RequestsForwarded((head.topic, head.source), head.first, head.stop), JOURNAL, 0.0
            )

    def dead_lettered(self, letter: DeadLetter) -> None:
        """A dead letter was written. If the subscriber served the request, the request is answered."""
        account = self._journal.ledger.accounts.get(letter.subscriber)
        if account is not None and account.pattern.text == letter.topic:
            died = RequestsUndeliverable(
                series=(letter.topic, letter.source),
                start=letter.start,
                stop=letter.stop,
                code=letter.code,
                reason=letter.reason,
                text=letter.text,
            )
            self.watch.receive(died, JOURNAL, 0.0)
            self.effects += self.watch.take_effects()

    def refused(self, refused: RefusedBatch, may_be: MayBe) -> None:
        """Requests were refused. A peer that may not be their source gets no response there, but over its connection."""
        problem, batch = refused.refusal, refused.batch
        if problem.reason is None or problem.code == Code.UNAUTHENTICATED or batch.head.type != TYPE_REQUEST:
            return
        code = answer_code(problem.reason, problem.code, is_delivered=False)
        for seq, one in enumerate(read_loosely(batch), batch.first):
            if one is not None and _is_answerable(one) and may_be(refused.peer, one.source):
                self.effects.append(Respond(one, code, problem.text, (batch.topic, batch.source), seq))

    # -- responses

    def tick(self, now: float) -> None:
        """Answer requests that have expired. A request without any subscriber becomes a dead letter, too."""
        self.watch.tick(now)
        effects = self.watch.take_effects()
        if not effects:
            return
        served = {account.pattern.text for account in self._journal.ledger.accounts.values()}
        for effect in effects:
            self.effects.append(effect)
            if effect.code is Code.UNAVAILABLE and effect.series[0] not in served:
                self.effects.append(_unroutable(*effect.series, effect.seq, effect.text))

    def next_deadline(self) -> float | None:
        """When `tick` is due next."""
        return self.watch.next_deadline()

    def take_effects(self) -> list[Respond | RefusedBatch | DeadLetter]:
        """The effects since the last call, in order."""
        effects, self.effects = self.effects, []
        return effects

    def unwanted(self, response: Batch) -> None:
        """Nobody waits for a response that was written: it becomes a dead letter."""
        reason = Reason.NO_ROUTE
        problem = Refusal(CODE_OF[reason], "nobody waits for this response any more", reason)
        self.effects.append(RefusedBatch(JOURNAL, response, problem))

    def write(self, effect: Respond) -> Batch:
        """The batch to append for a response."""
        response = response_to(effect.request, self._ids(), effect.code, Format.PROTOBUF)
        topic = response.topic
        source = lasting_source(f"{self._name}\0responses\0{topic}", self._journal.id)
        seq = self._journal.sources(topic).get(source, 0) + 1
        payload = to_status(effect.code, effect.text)
        return Batch.build(source, topic, seq, [payload], self._now_us(), **fields_of([response]))


def _unroutable(topic: str, source: bytes, seq: int, text: str) -> DeadLetter:
    reason = Reason.NO_ROUTE
    return DeadLetter("", topic, source, seq, seq + 1, int(CODE_OF[reason]), str(reason), text, 0)


def _is_answerable(request: Attributes) -> bool:
    """Whether a request names its source and sink well enough to be answered; the rest of it may be wrong."""
    rule = RULES[Kind.REQUEST]
    assert rule.sink is not None
    try:
        check_id(request.id)
    except InvalidAttributes:
        return False
    source, sink = request.source, request.sink
    if source.is_pattern or sink is None or sink.is_pattern:
        return False
    return source.resource in rule.source and sink.resource in rule.sink
