"""What must hold in every fabric: each check is a function, and its first line is the sentence that it promises.

`CHECKS` has all of them. A check gives the problems that it found; none is good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from reknit.ledger import LedgerRow
from reknit.testing.fabric.checks.gateways import GATEWAY_CHECKS, is_hostile
from reknit.testing.fabric.checks.groups import GROUP_CHECKS
from reknit.testing.fabric.checks.quotas import QUOTA_CHECKS
from reknit.testing.fabric.checks.replicas import REPLICA_CHECKS
from reknit.testing.fabric.checks.rest import REST_CHECKS
from reknit.testing.fabric.checks.rules import (
    RULE_CHECKS,
    is_dead_letter,
    is_refused,
    losses_are_counted,
    may_be_withheld,
)
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.programs.groups import TOPIC
from reknit.testing.fabric.programs.program import Scene
from reknit.testing.fabric.record import Seen, Sent
from reknit.testing.fabric.replacements import is_forgotten, may_be_gone
from reknit.testing.fabric.rules import feeds_owe, protects_owed
from reknit.topic import Pattern

Check = Callable[[Scene], Iterator[str]]


def owed_events_arrive(scene: Scene) -> Iterator[str]:
    """Every event that was stored after a subscriber was known reaches it, or it is told that the event is lost."""
    for seen in scene.record.seen.values():
        for sent in owed(scene, seen):
            if sent.payload not in seen.received and not has_ended_unseen(scene, seen, sent):
                yield f"{seen.name} never got {sent.payload!r} on {sent.topic}, which was stored"


def owed(scene: Scene, seen: Seen) -> Iterator[Sent]:
    """The events that a subscriber has to get: not those that a feed may miss, from an outpost or to one."""
    pattern = Pattern(seen.pattern)
    are_fed = feeds_owe(scene.plan)
    if seen.node in scene.outposts and not are_fed:
        return
    if not seen.is_durable and _is_forgotten(scene, seen):
        return
    if is_forgotten(scene.replaced, seen) or (scene.replaced and seen.node in scene.outposts):
        return
    for sent in scene.record.sent.values():
        is_owed = sent.is_stored and sent.put_at > seen.ready_at and pattern.matches(sent.topic)
        is_fed = are_fed or scene.homes.get(sent.publisher) not in scene.outposts
        if is_owed and is_fed and not _may_be_gone(scene, sent):
            yield sent


def _may_be_gone(scene: Scene, sent: Sent) -> bool:
    """Whether the disk on which an event was stored may be gone; one of an outpost is stored elsewhere in the fabric."""
    home = scene.homes[sent.publisher]
    return may_be_gone(scene.replaced, home, sent) or (bool(scene.replaced) and home in scene.outposts)


def _is_forgotten(scene: Scene, seen: Seen) -> bool:
    """Whether nobody may know any more what a subscriber without a name wants.

    Its own node forgets that in a restart, and another node, which would send again what came meanwhile, in its own.
    """
    restarted = {node.name for node in scene.fabric.nodes.values() if node.starts > 1}
    return seen.node in restarted and len(restarted) > 1


def has_ended_unseen(scene: Scene, seen: Seen, sent: Sent) -> bool:
    """Whether an event ended for a subscriber that never got it: as a loss, or as a dead letter."""
    if _is_told_lost(seen, sent) or losses_are_counted(scene, seen, sent):
        return True
    return may_be_withheld(scene, seen, sent) or is_dead_letter(scene, seen, sent)


def _is_told_lost(seen: Seen, sent: Sent) -> bool:
    if sent.id is None:
        return False
    topic, source, seq = sent.id
    return any(row[:2] == (topic, source) and row[2] <= seq < row[3] for row in seen.lost)


def nothing_is_lost(scene: Scene) -> Iterator[str]:
    """No event is lost to a durable subscriber as long as retention removes nothing that is owed.

    An event of a group is lost to a node if no member brings it in time. One that a node refuses is a dead letter
    there, and lost to its subscribers.
    """
    is_promised = protects_owed(scene.plan) and not scene.replaced
    for seen in scene.record.seen.values() if is_promised else ():
        lost = [row for row in seen.lost if row[0] != TOPIC and not is_refused(scene, *row)]
        if seen.is_durable and lost:
            yield f"{seen.name} was told of losses: {lost[:3]}"


def outcomes_are_true(scene: Scene) -> Iterator[str]:
    """A sender is told ACCEPTED if a worker accepted its event, and RELEASED or REJECTED only if none did.

    If a node ends in between, an acceptance that was not confirmed is undone. The event comes again.
    """
    workers = [seen for seen in scene.record.seen.values() if seen.pattern.startswith("jobs/")]
    for sent in scene.record.sent.values():
        if not sent.result:
            continue
        accepted = sum(seen.accepted.get(sent.payload, 0) for seen in workers)
        if sent.result == "ACCEPTED" and not accepted:
            yield f"{sent.payload!r} was said to be accepted, and nobody accepted it"
        is_false = sent.result == "RELEASED" or (
            sent.result == "REJECTED" and not _has_node_ended(scene, sent)
        )
        if is_false and accepted and not scene.replaced:
            yield f"{sent.payload!r} was said to be {sent.result}, and a worker accepted it"
        if sent.result == "REJECTED" and not any(sent.payload in seen.rejected for seen in workers):
            yield f"{sent.payload!r} was said to be rejected, and nobody rejected it"


def _has_node_ended(scene: Scene, sent: Sent) -> bool:
    """Whether a node stopped or crashed between the publication of an event and its outcome."""
    return any(sent.put_at < at <= sent.ended_at for node in scene.fabric.nodes.values() for at in node.ends)


def one_answer_per_request(scene: Scene) -> Iterator[str]:
    """A request gets one answer, and a reply is the one to its own request."""
    for text, answers in scene.record.replies.items():
        if len(answers) > 1:
            yield f"request {text!r} got {answers}"
        for answer in answers:
            if not answer.startswith("failed: ") and answer != f"re: {text}":
                yield f"request {text!r} got the reply {answer!r}"
            elif answer == f"re: {text}" and not scene.record.served.get(text):
                yield f"request {text!r} got a reply, and nobody served it"


def ledgers_balance(scene: Scene) -> Iterator[str]:
    """On every node, published = accepted + dead-lettered + lost + in flight, and nothing is in flight at rest."""
    for node in scene.fabric.nodes.values():
        for row in _rows(node):
            if not row.balanced:
                yield f"{node.name}: a row of the ledger does not balance: {row}"
            elif row.in_flight and not is_hostile(row.topic):
                yield f"{node.name}: events are in flight at rest: {row}"


def _rows(node: FabricNode) -> list[LedgerRow]:
    return list(node.node.journal.ledger.rows(node.node.in_hand()))


def rejected_events_are_dead_letters(scene: Scene) -> Iterator[str]:
    """An event that a durable subscriber rejected has ended as a dead letter, and does not come again."""
    replaced = {one.node for one in scene.replaced}
    for seen in scene.record.seen.values():
        for payload in seen.rejected if seen.is_durable and seen.node not in replaced else ():
            if seen.received.get(payload, 0) > 1 and payload in seen.accepted:
                continue  # the rejection was never told: the program or its connection ended before
            sent = scene.record.sent[payload]
            if sent.id is not None and not _has_ended(scene, seen, sent):
                yield f"{seen.name} rejected {payload!r}, and it has no outcome"


def _has_ended(scene: Scene, seen: Seen, sent: Sent) -> bool:
    assert sent.id is not None
    topic, source, seq = sent.id
    account = scene.fabric.nodes[seen.node].node.journal.ledger.accounts.get(seen.name)
    return account is not None and seq in account.ended((topic, source))


def no_error_is_unhandled(scene: Scene) -> Iterator[str]:
    """No exception escapes from a callback or a task, on any host."""
    yield from scene.fabric.errors


def journals_hold_what_was_stored(scene: Scene) -> Iterator[str]:
    """An event that was said to be stored is in its node's ledger, once."""
    for sent in scene.record.sent.values():
        home = scene.homes.get(sent.publisher, "")
        if sent.is_stored and sent.id is not None and not may_be_gone(scene.replaced, home, sent):
            topic, source, seq = sent.id
            published = [
                node.node.journal.ledger.published.get((topic, source))
                for node in scene.fabric.nodes.values()
            ]
            if not any(seqs is not None and seq in seqs for seqs in published):
                yield f"{sent.payload!r} was stored, and no node's ledger has {topic} {source.hex()} {seq}"


CHECKS: Final[tuple[Check, ...]] = (
    owed_events_arrive,
    nothing_is_lost,
    outcomes_are_true,
    one_answer_per_request,
    ledgers_balance,
    rejected_events_are_dead_letters,
    no_error_is_unhandled,
    journals_hold_what_was_stored,
    *RULE_CHECKS,
    *REPLICA_CHECKS,
    *GATEWAY_CHECKS,
    *QUOTA_CHECKS,
    *GROUP_CHECKS,
    *REST_CHECKS,
)


def judge(scene: Scene) -> list[str]:
    """Every problem of a fabric that came to rest."""
    return [f"{check.__name__}: {problem}" for check in CHECKS for problem in check(scene)]
