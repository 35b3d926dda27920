"""Invariants at the end of a simulated run, whatever faults it had."""

from __future__ import annotations

import itertools
from typing import Protocol

from reknit.testing.group.member import SimMember
from reknit.testing.group.plan import GroupPlan


class GroupRun(Protocol):
    """A run that has ended, or pauses."""

    plan: GroupPlan
    nodes: list[SimMember]
    by_id: dict[bytes, SimMember]

    def survivors(self) -> list[SimMember]:
        """The members that are there."""


def check_all(run: GroupRun) -> None:
    """Check all invariants at the end of a run. Raises AssertionError."""
    there = run.survivors()
    assert there, "nobody is left"
    views = {n.name: n.machine.view.fingerprint for n in there if n.machine.view is not None}
    assert len(views) == len(there), "a member has no view"
    assert len(set(views.values())) == 1, f"survivors see different views: {views}"
    ids = set(there[0].machine.view.ids) if there[0].machine.view is not None else set()
    assert ids == {n.id for n in there}, "the view is not the survivors"
    for node in run.nodes:
        back = [one.name for one in run.nodes if one.has_taken_back(node)] if node.is_leaving else []
        assert run.plan.partitions or not back, f"{back} took {node.name} back, which was leaving"
        is_evicted = node.why_left and not node.is_leaving and run.plan.slow_member != "evict"
        assert not is_evicted, f"{node.name} was put out: {node.why_left}"
    for node in there:
        _check_rest(run, node)
        for source, items in node.got.items():
            _check_sequence(run, node, run.by_id[source], items)
            _check_lost(run, node, run.by_id[source])
            end, name = items[-1][0] + items[-1][2] - 1, run.by_id[source].name
            assert end >= node.heard.get(source, 0), f"{node.name} heard of more of {name} than {end}"
    for sender in run.nodes:
        _check_ends(run, there, sender)
        for one, other in itertools.combinations(there, 2):
            _check_same(run, one, other, sender)


def is_at_rest(run: GroupRun) -> bool:
    """Whether nobody waits for anything, and all survivors agree on who is there."""
    there = run.survivors()
    ids = {one.id for one in there}
    return all(_is_member_at_rest(one, ids) for one in there)


def _is_member_at_rest(one: SimMember, ids: set[bytes]) -> bool:
    machine = one.machine
    if machine.view is None or set(machine.view.ids) != ids or one.open_tickets:
        return False
    receivers = machine.multicast.receivers.values()
    return machine.multicast.sender.is_settled and all(
        receiver.departure is None and receiver.window.acked == receiver.window.high for receiver in receivers
    )


def _check_rest(run: GroupRun, node: SimMember) -> None:
    """No member waits for anything."""
    assert not node.open_tickets, f"{node.name} has senders that wait for ever"
    assert node.machine.multicast.sender.is_settled, f"{node.name} waits for acks for ever"
    for receiver in node.machine.multicast.receivers.values():
        assert receiver.source in run.by_id, f"{node.name} takes events of a stranger"
        name = run.by_id[receiver.source].name
        assert receiver.departure is None, f"{node.name} has not done with {name}"
        window = receiver.window
        assert window.acked == window.high, f"{node.name} waits for {window.missing()} of {name}"


def _check_sequence(
    run: GroupRun, node: SimMember, source: SimMember, items: list[tuple[int, list[bytes] | None, int]]
) -> None:
    """Every event is delivered once, in order, as it was sent; a missing one is reported as lost in its place."""
    following = items[0][0]
    for first, payloads, count in items:
        assert first == following, f"{node.name} got {first} of {source.name}, not {following}"
        following = first + count
        if payloads is not None:
            sent = source.sent[first - 1 : following - 1]
            assert payloads == sent, f"{node.name} got other payloads of {source.name} at {first}"


def _check_lost(run: GroupRun, node: SimMember, source: SimMember) -> None:
    """Nothing is lost of a sender that lives and was never apart, except events that it dead-lettered itself."""
    is_together = node.has_had_always(source.id) and source.has_had_always(node.id)
    if source.is_alive and is_together:
        lost = node.seqs(source.id, lost=True).difference(source.dead[node.id])
        assert not lost, f"{node.name} lost {lost.ranges()} of {source.name}, which is there"


def _check_ends(run: GroupRun, there: list[SimMember], source: SimMember) -> None:
    """All members that received a sender know the same last event, delivered or lost, whatever partitions there were."""
    ends = {n.name: _end(run, n, source) for n in there if _end(run, n, source) is not None}
    assert len(set(ends.values())) <= 1, f"of {source.name} the survivors have {ends}"
    if source in there and ends:
        assert set(ends.values()) == {len(source.sent)}, f"of {source.name} {ends}, not {len(source.sent)}"


def _check_same(run: GroupRun, one: SimMember, other: SimMember, source: SimMember) -> None:
    """Members with the same views, or never apart, deliver the same, from the join of the later one on."""
    if not _is_same_history(one, other) and not _were_always_together(one, other, source):
        return
    if any(_were_apart(node, source) for node in (one, other)):
        return
    if source.id not in one.got or source.id not in other.got:
        return
    start = max(one.got[source.id][0][0], other.got[source.id][0][0])
    excused = source.dead[one.id].union(source.dead[other.id])
    first, second = (node.seqs(source.id, lost=False).difference(excused) for node in (one, other))
    for seqs in (first, second):
        seqs.discard(0, start)
    assert first == second, (
        f"of {source.name} {one.name} delivered {first.difference(second).ranges()} and {other.name} "
        f"{second.difference(first).ranges()} that the other did not"
    )


def _were_apart(one: SimMember, other: SimMember) -> bool:
    """Whether one of the two was removed by the other and admitted again.

    A sender fixes where one starts that it lets in, and what it sent meanwhile is reported as lost.
    """
    return one.has_had_back(other.id) or other.has_had_back(one.id)


def _were_always_together(one: SimMember, other: SimMember, source: SimMember) -> bool:
    """Whether no member removed another that was there, though one may have missed some views."""
    pairs = ((one, other), (other, one), (source, one), (source, other))
    if not source.views or not all(node.has_had_always(member.id) for node, member in pairs):
        return False
    first, last = source.views[0].key, source.views[-1].key
    views = [view for node in (one, other) for view in node.views if first <= view.key <= last]
    return all(source.id in view for view in views)


def _end(run: GroupRun, node: SimMember, source: SimMember) -> int | None:
    """The last event that a survivor has of a source that gave it a start."""
    multicast = node.machine.multicast
    if source is node:
        return multicast.sender.outbox.window.delivered
    receiver = multicast.receivers.get(source.id)
    return receiver.window.delivered if receiver is not None else multicast.departed(source.id)


def _is_same_history(one: SimMember, other: SimMember) -> bool:
    """True if one of them has seen all views of the other, or all since it joined."""
    keys, others = ([view.key for view in node.views] for node in (one, other))
    short, long = sorted((keys, others), key=len)
    return long[-len(short) :] == short
