"""Admin requests that change state: pause topics, redrive or drop dead letters, cancel events, give things to others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from reknit.errors import JournalFull, LocalError
from reknit.ledger import Ledger
from reknit.node.core.dead_letter_admin import DeadLetterAdmin
from reknit.node.core.scheduling import Scheduling
from reknit.outcome import Code
from reknit.protocol.dispatch.dispatcher import Dispatcher
from reknit.protocol.dispatch.inputs import SetPaused
from reknit.protocol.effects import AppendRecord
from reknit.protocol.machine import Peer
from reknit.protocol.publish.intake import Intake
from reknit.records import SourceOwned, SubscriberOwned
from reknit.topic import Pattern
from reknit.wire.messages import Answer, Ask, Message

OnOrder = Callable[[Ask, Peer, Code, str, Any], None]
"""Hears of every order: how it ended, and the answer."""


class OrderOutput(Protocol):
    """Answers an order, at once or when everything staged before is durable."""

    def say(self, peer: Peer, message: Message) -> None:
        """Send a message now."""

    def say_when_durable(self, peer: Peer, message: Message, now: float) -> None:
        """Send a message once everything that was staged before it is durable."""

    def stage(self, effect: AppendRecord, now: float) -> None:
        """Stage a record for the journal."""

    def mark(self, now: float) -> int:
        """A number that is durable when everything staged by now is."""


class AdminOrders:
    """Carries out orders. Each is answered when its change is durable."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        dispatch: Dispatcher,
        intake: Intake,
        dead_letters: DeadLetterAdmin,
        scheduling: Scheduling,
        output: OrderOutput,
    ) -> None:
        self._ledger = ledger
        self._dispatch = dispatch
        self._intake = intake
        self._dead_letters = dead_letters
        self._scheduling = scheduling
        self._output = output
        self._on_order: OnOrder | None = None

    def watch(self, on_order: OnOrder) -> None:
        """Call this for every order."""
        self._on_order = on_order

    def take(self, ask: Ask, peer: Peer, now: float) -> None:
        """Carry out an order from a peer."""
        try:
            match ask.what:
                case "pause" | "resume":
                    pattern = Pattern(str(ask.args["pattern"])).text
                    self._dispatch.receive(SetPaused(ask.id, pattern, ask.what == "pause"), peer, now)
                    self._tell(Answer(ask.id, Code.OK, ""), ask, peer)
                    return
                case "own":
                    body = self._own(ask.args, now)
                case "redrive":
                    body = self._redrive(ask.args, now)
                case "cancel":
                    body = self._scheduling.cancel(ask.args, now)
                case _:
                    body = self._dead_letters.drop(ask.args)
        except JournalFull as error:
            self._fail(Answer(ask.id, Code.RESOURCE_EXHAUSTED, str(error)), ask, peer)
            return
        except (LocalError, LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
            self._fail(Answer(ask.id, Code.INVALID_ARGUMENT, f"{ask.what}: {error}"), ask, peer)
            return
        answer = Answer(ask.id, Code.OK, "", body)
        self._tell(answer, ask, peer)
        self._output.say_when_durable(peer, answer, now)

    def _fail(self, answer: Answer, ask: Ask, peer: Peer) -> None:
        self._output.say(peer, answer)
        self._tell(answer, ask, peer)

    def _tell(self, answer: Answer, ask: Ask, peer: Peer) -> None:
        if self._on_order is not None:
            self._on_order(ask, peer, Code(answer.code), answer.text, answer.body)

    def _own(self, args: dict[str, Any], now: float) -> dict[str, Any]:
        """Give a source or a durable subscriber to another identity."""
        owner = str(args["owner"])
        if owner.split() not in ([], [owner]):
            raise ValueError(f"{owner!r} is not a name: it has spaces")
        record: SourceOwned | SubscriberOwned
        if "source" in args:
            source = bytes.fromhex(str(args["source"]))
            topic = next((topic for topic, known in self._ledger.published if known == source), None)
            if topic is None:
                raise ValueError(f"source {source.hex()!r} has published nothing here")
            record = SourceOwned(topic, source, owner)
            self._intake.owner_changed(source)
        else:
            name = str(args["subscriber"])
            if name not in self._ledger.accounts:
                raise ValueError(f"there is no durable subscriber {name!r}")
            record = SubscriberOwned(name, owner)
        self._output.stage(AppendRecord(self._intake.next_number(), record), now)
        return {"owner": owner}

    def _redrive(self, args: dict[str, Any], now: float) -> dict[str, Any]:
        """Redrive dead letters. The intake knows the new events, in case that they come back over a bridge."""
        try:
            return self._dead_letters.redrive(args)
        finally:
            if stops := self._dead_letters.take_published():
                self._intake.appended_here(self._output.mark(now), stops)
