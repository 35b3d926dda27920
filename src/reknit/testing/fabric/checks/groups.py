"""What must hold for the members of a group and their nodes; see `reknit.testing.fabric.checks.events`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

from reknit.seqset import SeqSet
from reknit.testing.fabric.programs.groups import TOPIC, GroupLife
from reknit.testing.fabric.programs.program import Scene
from reknit.testing.fabric.record import Seen
from reknit.testing.fabric.replacements import is_forgotten
from reknit.topic import Pattern


def members(scene: Scene) -> list[GroupLife]:
    """Those that are in the group now."""
    return [life for life in scene.lives if not life.is_over]


def members_agree(scene: Scene) -> Iterator[str]:
    """All members see the same members at rest: themselves."""
    there = members(scene)
    ids = {life.id for life in there}
    for life in there:
        if {member.id for member in life.group.members} != ids:
            yield f"{life.name} sees {len(life.group.members)} members of {len(ids)}"


def members_get_every_event(scene: Scene) -> Iterator[str]:
    """A member gets every event that was sent while the sender knew it as a member, or is told that it is lost."""
    seqs = {payload: (event_id[1], event_id[2]) for event_id, payload in scene.record.by_id.items()}
    for life, sender in product(members(scene), members(scene)):
        if life is sender and not life.received.get(life.id):
            continue  # it discards its own events
        for payload, ids in sender.sent.items():
            if life.id in ids and payload not in life.seen.received:
                source, seq = seqs.get(payload, (sender.id, 0))
                if seq not in life.lost.get(source, SeqSet()):
                    yield f"{life.name} never got {payload!r} of {sender.name}, seq {seq}"


def members_know_the_same_end(scene: Scene) -> Iterator[str]:
    """Members that got events of one that is gone know the same last one of it, received or lost."""
    there = members(scene)
    gone = {life.id: life.name for life in scene.lives if life.is_over}
    for source, name in gone.items():
        ends = {life.name: life.known(source).last for life in there if life.received.get(source)}
        if len(set(ends.values())) > 1:
            yield f"of {name} {source.hex()} the members have {ends}"


def group_losses_have_a_cause(scene: Scene) -> Iterator[str]:
    """Members that were never apart lose nothing of each other, except for dead letters."""
    for life, sender in product(members(scene), members(scene)):
        if life.was_with(sender.id) and sender.was_with(life.id):
            lost = life.lost.get(sender.id, SeqSet()).difference(sender.dead.get(life.id, SeqSet()))
            if lost:
                yield f"{life.name} lost {lost.ranges()} of {sender.name}, and they were never apart"


def group_events_are_stored(scene: Scene) -> Iterator[str]:
    """Everything that a member has of its group is in the ledger of its node, stored or lost.

    A node refuses events whose time is in the future, as after a step of a clock: they are dead letters, and lost there.
    """
    replaced = {one.node for one in scene.replaced}
    for life in members(scene):
        if life.node in replaced:
            continue
        ledger = scene.fabric.nodes[life.node].node.journal.ledger
        for source, seqs in life.received.items():
            series = (TOPIC, source)
            known = ledger.published.get(series, SeqSet()).union(ledger.skipped.get(series, SeqSet()))
            missing = seqs.difference(known)
            if missing:
                yield f"{life.node} has not stored {missing.ranges()} of {source.hex()}, which {life.name} has"


def stored_group_events_arrive(scene: Scene) -> Iterator[str]:
    """Every event of a group that a node stored reaches the durable subscribers of its topic, or is lost to them."""
    linked = [node for node in scene.fabric.nodes.values() if node.name not in scene.outposts]
    published = dict[bytes, SeqSet]()
    for node in linked if scene.lives else ():
        for (topic, source), seqs in node.node.journal.ledger.published.items():
            if topic == TOPIC:
                published[source] = published.get(source, SeqSet()).union(seqs)
    for seen in scene.record.seen.values():
        is_owed = seen.is_durable and not is_forgotten(scene.replaced, seen)
        if is_owed and Pattern(seen.pattern).matches(TOPIC) and seen.node not in scene.outposts:
            for source, seqs in published.items():
                yield from _missed(scene, seen, source, seqs)


def _missed(scene: Scene, seen: Seen, source: bytes, seqs: SeqSet) -> Iterator[str]:
    account = scene.fabric.nodes[seen.node].node.journal.ledger.accounts.get(seen.name)
    ended = account.ended((TOPIC, source)) if account is not None else SeqSet()
    for start, stop in seqs.difference(ended).ranges():
        for seq in range(start, stop):
            payload = scene.record.by_id.get((TOPIC, source, seq))
            if payload is not None and scene.record.sent[payload].put_at > seen.ready_at:
                yield f"{seen.name} never got {payload!r}, seq {seq} of {source.hex()}, which was stored"


GROUP_CHECKS: Final = (
    members_agree,
    members_get_every_event,
    members_know_the_same_end,
    group_losses_have_a_cause,
    group_events_are_stored,
    stored_group_events_arrive,
)
