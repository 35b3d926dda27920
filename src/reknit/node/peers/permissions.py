"""Which messages each peer may send, by the rules of the node's gate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from reknit.address import Address
from reknit.audit import AUDIT_TOPIC
from reknit.batch import Batch
from reknit.config import Config
from reknit.envelope.columns import read_attributes
from reknit.errors import InvalidTopic
from reknit.ledger import OF_GATEWAYS, Ledger
from reknit.node.peers.peers import Peers, PeerState
from reknit.outcome import Code, Outcome, Reason
from reknit.protocol.machine import Peer
from reknit.protocol.publish.admission import Refusal
from reknit.topic import RESERVED, Pattern, target_of
from reknit.trust.gate import Gate
from reknit.trust.identities import OURSELVES, Unauthenticated
from reknit.trust.rules import ANONYMOUS, EVERYTHING, ITSELF
from reknit.wire.codec import Frames, Item
from reknit.wire.links import Skip, Via
from reknit.wire.messages import (
    Answer,
    Ask,
    Bye,
    Credit,
    Declare,
    Holding,
    Ping,
    Pong,
    Settle,
    Subscribe,
    Unsubscribe,
    Unsubscribed,
)
from reknit.wire.outcomes import RangeOutcome, Told, Want
from reknit.wire.recovery import Heartbeat, Offer, Recover, Recovered, Require, Survey, Surveyed
from reknit.wire.streams import Abort, Begin, Piece, Room

_READING: Final = frozenset(
    (
        "status",
        "summary",
        "ledger",
        "ledger_page",
        "queues",
        "topics",
        "topics_page",
        "subscribers_page",
        "losses",
        "streams",
        "pipeline",
        "pipelines",
        "metrics",
    )
)
"""Admin requests about all topics: a peer that may watch everything may send them."""
_JOURNAL: Final = frozenset(("span", "read", "records", "index"))
"""Admin requests for the journal itself, which also has the node's own topics: these have to be allowed, too."""
_BY_PATTERN: Final = {
    "find": "topic",
    "search": "topic",
    "checkpoint": "pattern",
    "align": "pattern",
    "scheduled": "pattern",
}
"""Admin requests for events of some topics, and the argument that names them."""
_WATCHED: Final = {"fate": "topic", "story": "topic", "sources_page": "topic"}
"""Admin requests for figures about some topics."""
_TRAIL: Final = {"audit_tail": AUDIT_TOPIC}
"""Admin requests for events of one topic."""
_ANYONE: Final = frozenset(("whoami",))
_FREE: Final = frozenset(
    (
        Frames,
        Declare,
        Credit,
        Holding,
        Settle,
        Unsubscribe,
        Ping,
        Pong,
        Bye,
        Recovered,
        Surveyed,
        Piece,
        Room,
        Abort,
    )
)
"""Messages that need no permission of their own: the core checks what is published, others follow a permitted one."""


CallLater = Callable[[float, Callable[[], None]], object]


def is_of_node(peer: PeerState | None, gate: Gate) -> bool:
    """Whether a peer is a part of this node, or copies another node's events and is an admin by a rule."""
    if peer is None or peer.connection.is_inside:
        return peer is not None
    return peer.is_copier and not gate.is_open and gate.is_admin(peer.identity)


class Permissions:
    """Decides what each peer of one node may do."""

    def __init__(
        self, config: Config, gate: Gate, peers: Peers, ledger: Ledger, call_later: CallLater
    ) -> None:
        self._gate = gate
        self._call_later = call_later
        self._peers = peers
        self._ledger = ledger
        """It has the owners of sources and durable subscribers."""
        gate.sources.follow(lambda: ledger.owners)
        self._sources_max = config.limits.sources_max
        self._topics = {source: topic for topic, source in ledger.published}
        """By source: the one topic that it publishes on, from the journal or as permitted since."""
        self._checks: dict[type[Any], Callable[[Any, PeerState], bool]] = {
            Subscribe: self._admits_subscribe,
            Recover: self._admits_recover,
            Survey: self._admits_survey,
            Offer: self._admits_offer,
            Heartbeat: self._admits_publisher,
            Require: self._admits_publisher,
            Want: self._admits_publisher,
            Skip: self._admits_skip,
            Begin: self._admits_begin,
            Via: self._admits_via,
            Ask: self._may_ask,
        }
        """By type of message: whether a peer may send it. All others need the `admin` permission."""

    def _name(self, peer: Peer) -> str:
        state = self._peers.get(peer)
        return ANONYMOUS if state is None else state.identity

    def greet(self, token: str, peer: PeerState) -> bool:
        """Identify a peer by name. False if its token is not valid, and it was told so."""
        if peer.connection.is_inside:
            peer.identified(OURSELVES)
            return True
        try:
            identity = self._gate.identify(token, peer.connection.certified)
        except Unauthenticated as error:
            self._gate.audit.login(None, peer.connection.door, peer.connection.peer, error.why)
            self._refuse(peer, error.why)
            return False
        peer.identified(identity)
        self._gate.logins.add(peer)
        self._gate.audit.login(identity, peer.connection.door, peer.connection.peer)
        return True

    def _refuse(self, peer: PeerState, why: str) -> None:
        """Tell a peer why it is not let in. One from an address that fails again and again hears it later."""
        address, attempts = peer.address, self._gate.attempts
        wait_s = attempts.failed(address, peer.connection.door)
        if wait_s is None:
            peer.end(Code.UNAUTHENTICATED, "too many failed attempts from this address")
            return
        dismiss = peer.dismissal(Code.UNAUTHENTICATED, why)
        if not wait_s:
            dismiss()
            return

        def answer() -> None:
            attempts.answered(address)
            dismiss()

        self._call_later(wait_s, answer)

    def left(self, peer: PeerState) -> None:
        """A peer's connection is gone."""
        self._gate.logins.remove(peer)

    # -- when the rules have changed

    def may_link(self, peer: PeerState) -> bool:
        """Whether a peer may be a linked node."""
        return self._gate.is_admin(peer.identity)

    def subscription_objection(self, peer: PeerState, pattern: str, durable: str) -> str:
        """Why a peer may not have a subscription; empty if it may."""
        return self._subscription_objection(peer, pattern, durable)

    def may_offer(self, peer: Peer, pattern: str) -> bool:
        """Whether a peer may hold the events of these topics for others."""
        return self._allows(self._name(peer), "publish", pattern)

    def may_stream(self, peer: Peer, topic: str) -> bool:
        """Whether a stream on a topic may come from a peer. Those from neighbours and gateways were permitted there."""
        return self._peers.get(peer) is None or self._allows(self._name(peer), "publish", topic)

    # -- publishing

    def permit(self, peer: Peer, source: bytes, topic: str) -> Refusal | None:
        """Why a peer may not publish as a source on a topic."""
        name = self._name(peer)
        problem = self._objection(name, source, topic) or self._too_many(name, source)
        if problem is None and name != ITSELF and len(self._topics) < self._sources_max:
            self._topics.setdefault(source, topic)
        return problem

    def _too_many(self, name: str, source: bytes) -> Refusal | None:
        """Why a name may not have another source: its quota."""
        if source in self._ledger.owners or not (text := self._gate.sources.objection(name)):
            return None
        self._gate.refusals.report(name, "quota", text)
        return Refusal(Code.RESOURCE_EXHAUSTED, text)

    def owner(self, peer: Peer, topic: str) -> str:
        """The identity that owns what a peer publishes on a topic, or subscribes to it as; empty if nobody does.

        Any member may publish a group's events.
        """
        return "" if topic.startswith("group/") else self._name(peer)

    def _objection(self, name: str, source: bytes, stored_on: str) -> Refusal | None:
        topic = target_of(stored_on)
        try:
            is_allowed = self._gate.rules.may(name, "publish", Pattern(topic))
        except InvalidTopic as error:
            return Refusal(Code.INVALID_ARGUMENT, str(error), Reason.MALFORMED)
        if not is_allowed:
            return Refusal(
                Code.PERMISSION_DENIED, f"{name} may not publish on {topic!r}", Reason.DENIED, is_stored=False
            )
        if name != ITSELF and (text := self._not_theirs(name, source, stored_on)):
            return Refusal(Code.UNAUTHENTICATED, text, Reason.UNAUTHENTICATED, is_stored=False)
        return None

    def _not_theirs(self, name: str, source: bytes, topic: str) -> str:
        """Why a name may not publish as a source, or an empty text. Any member may publish a group's events."""
        if self._ledger.owners.get(source, name) != name:
            return f"source {source.hex()} is not {name}'s: publish under a name of your own"
        if self._topics.get(source, topic) != topic:
            return f"source {source.hex()} publishes on another topic: use one source for each"
        return ""

    def may_be(self, peer: Peer, address: Address) -> bool:
        """Whether events from an address may come from a peer."""
        return self._gate.rules.may_be(self._name(peer), address)

    def inspect(self, peer: Peer, batch: Batch) -> Refusal | None:
        """Why valid events with attributes may not come from a peer."""
        name = self._name(peer)
        for source in dict.fromkeys(one.source for one in read_attributes(batch)):
            if not self._gate.rules.may_be(name, source):
                text = f"{name} may not be {source}: add '{name} as {source}' to security.allow"
                return Refusal(Code.UNAUTHENTICATED, text, Reason.UNAUTHENTICATED, is_stored=False)
        return None

    def refused(self, peer: Peer, batch: Batch, refusal: Refusal) -> None:
        """Count events that were refused and are not stored."""
        state = self._peers.get(peer)
        address = "" if state is None else state.connection.peer
        self._gate.refusals.count(
            self._name(peer), str(refusal.reason), refusal.text, batch.count, address=address
        )

    # -- all other messages

    def admits(self, item: Item, peer: PeerState) -> bool:
        """Whether a peer may send this. If not, it was told, or the message is ignored."""
        kind = type(item)
        if kind in _FREE:
            return True
        check = self._checks.get(kind)
        return check(item, peer) if check is not None else self._admits_admin(item, peer)

    def _admits_subscribe(self, item: Subscribe, peer: PeerState) -> bool:
        problem = self._subscription_objection(peer, item.pattern, item.account)
        if problem:
            peer.send(Unsubscribed(item.sub, Code.PERMISSION_DENIED, problem))
        return not problem

    def _admits_recover(self, item: Recover, peer: PeerState) -> bool:
        is_allowed = self._may_read(peer, item.topic)
        if not is_allowed:
            peer.send(Recovered(item.id, 0, item.ranges))
        return is_allowed

    def _admits_survey(self, item: Survey, peer: PeerState) -> bool:
        is_allowed = self._may_read(peer, item.pattern)
        if not is_allowed:
            peer.send(Surveyed(item.id, []))
        return is_allowed

    def _admits_offer(self, item: Offer, peer: PeerState) -> bool:
        return self._may(peer, "publish", item.pattern)

    def _admits_publisher(self, item: Heartbeat | Require | Want, peer: PeerState) -> bool:
        return self._may(peer, "publish", item.topic)

    def _admits_skip(self, item: Skip, peer: PeerState) -> bool:
        is_allowed = self._may(peer, "publish", item.topic)
        return is_allowed and not self._not_theirs(peer.identity, item.source, item.topic)

    def _admits_begin(self, item: Begin, peer: PeerState) -> bool:
        """The source is of this stream alone: it belongs to nobody else, and is not remembered."""
        objection = self._objection(peer.identity, item.source, item.topic)
        if objection is not None:
            self._report(peer, f"a stream: {objection.text}")
            fate = RangeOutcome(1, 2, Outcome.REJECTED, code=objection.code, text=objection.text, attempts=0)
            peer.send(Told(item.source, [fate]))
        return objection is None

    def _admits_via(self, item: Via, peer: PeerState) -> bool:
        """Only a bridge, which publishes the events of a source, may say which nodes the source has passed."""
        name, source = peer.identity, item.source
        is_theirs = name == ITSELF or self._ledger.owners.get(source, name) == name
        is_allowed = is_theirs and self._gate.rules.publishes(name)
        if not is_allowed:
            text = f"{name} may not report the nodes that source {source.hex()} has passed"
            self._report(peer, text)
        return is_allowed

    def _admits_admin(self, item: Item, peer: PeerState) -> bool:
        name = peer.identity
        if not self._gate.rules.is_admin(name):
            text = f"{name} may not send {type(item).__name__}: add '{name} admin' to security.allow"
            self._report(peer, text)
            peer.dismiss(Code.PERMISSION_DENIED, text)
        return not peer.is_leaving

    def _may(self, peer: PeerState, verb: str, text: str) -> bool:
        is_allowed = self._allows(peer.identity, verb, text)
        if not is_allowed:
            self._report(peer, f"{peer.identity} may not {verb} {text!r}")
        return is_allowed

    def _allows(self, name: str, verb: str, text: str) -> bool:
        try:
            return self._gate.rules.may(name, verb, Pattern(target_of(text) if verb == "publish" else text))
        except InvalidTopic:
            return True  # it is refused as invalid later

    def _report(self, peer: PeerState, text: str) -> None:
        self._gate.refusals.report(peer.identity, "denied", text, address=peer.connection.peer)

    def _may_read(self, peer: PeerState, text: str) -> bool:
        return self._may(peer, "subscribe", text)

    def _subscription_objection(self, peer: PeerState, pattern: str, durable: str) -> str:
        """The reason why a subscription is not permitted, or an empty text."""
        name = peer.identity
        if not self._may_read(peer, pattern):
            return f"{name} may not subscribe to {pattern!r}"
        if not durable or self._gate.rules.is_admin(name):
            return ""
        account = self._ledger.accounts.get(durable)
        owner = "" if account is None else account.owner
        if owner == name or (not owner and not durable.startswith(OF_GATEWAYS)):
            return ""
        text = f"subscriber {durable!r} is not {name}'s: use another name"
        self._report(peer, text)
        return text

    def _may_ask(self, ask: Ask, peer: PeerState) -> bool:
        name = peer.identity
        if ask.what in _ANYONE or self._may_watch(ask, name):
            return True
        patterns = _asked_patterns(ask)
        if ask.what == "skip" and self._may_skip(peer, str(ask.args.get("topic")), ask.args.get("source")):
            return True
        if ask.what == "cancel" and self._may(peer, "publish", str(ask.args.get("pattern"))):
            return True
        if self._gate.rules.is_admin(name):
            return True
        missing = next((one for one in patterns if not self._may_read(peer, one)), "")
        if patterns and not missing:
            return True
        needed = f"subscribe {missing}" if missing else "admin"
        text = f"{name} may not ask for {ask.what!r}: add '{name} {needed}' to security.allow"
        self._report(peer, text)
        peer.send(Answer(ask.id, Code.PERMISSION_DENIED, text))
        return False

    def _may_watch(self, ask: Ask, name: str) -> bool:
        """Whether this is a request for figures, without payloads and headers, and the peer may see those."""
        if ask.what in _READING or (ask.what == "dead_letters" and ask.args.get("payloads") is False):
            wanted: Any = EVERYTHING.text
        else:
            wanted = ask.args.get(_WATCHED.get(ask.what, ""))
        if not isinstance(wanted, str):
            return False
        try:
            return self._gate.rules.may_watch(name, Pattern(wanted))
        except InvalidTopic:
            return False

    def _may_skip(self, peer: PeerState, topic: str, source: Any) -> bool:
        """Whether a peer may report that some events of a source are lost."""
        try:
            known = bytes.fromhex(str(source))
        except ValueError:
            return True  # it is refused as invalid later
        return self._may(peer, "publish", topic) and not self._not_theirs(peer.identity, known, topic)


def _asked_patterns(ask: Ask) -> tuple[str, ...]:
    """The topics that an admin request is about; none for one that needs the `admin` permission."""
    if ask.what in _READING:
        return (EVERYTHING.text,)
    if ask.what in _JOURNAL:
        return (EVERYTHING.text, f"{RESERVED}**")
    if ask.what in _TRAIL:
        return (_TRAIL[ask.what],)
    argument: Any = ask.args.get({**_BY_PATTERN, **_WATCHED}.get(ask.what, ""))
    return (argument,) if isinstance(argument, str) else ()
