"""A coordinator's work: gather joins and leaves into a new view, and repeat the view until every member has it."""

from __future__ import annotations

from collections.abc import Collection

from reknit.protocol.multicast.settings import GroupSettings
from reknit.view import Member, View

NEVER = float("inf")


class Coordination:
    """The changes that are asked for, the members that lack our view, and the groups that we want to merge with."""

    def __init__(self, me: Member, settings: GroupSettings) -> None:
        self._me = me
        self._settings = settings
        self._joiners: dict[bytes, Member] = {}
        self._behind: set[bytes] = set()
        """The members that have not confirmed our view."""
        self._merging: dict[bytes, float] = {}
        """The coordinators that we asked for their view, and until when we take it."""
        self._change_at = NEVER
        self._repeat_at = NEVER

    @property
    def next_deadline(self) -> float:
        return min(self._change_at, self._repeat_at)

    # -- the next view

    def join(self, member: Member, now: float) -> None:
        """A new member is in the next view."""
        if len(self._joiners) < self._settings.members_max:
            self._joiners[member.id] = member
        self.change_soon(now)

    def cancel_join(self, member: bytes) -> None:
        """It does not want to join any more."""
        self._joiners.pop(member, None)

    def change_soon(self, now: float) -> None:
        """Make a new view, once further changes had time to come in."""
        self._change_at = min(self._change_at, now + self._settings.gather_s)

    def is_change_due(self, now: float) -> bool:
        return self._change_at <= now

    def next_view(self, view: View, leaving: set[bytes], evicted: Collection[bytes]) -> View | None:
        """The view with the joiners and without the leavers; None if nothing changes."""
        self._change_at = NEVER
        staying = view.without(leaving | set(evicted))
        joining = [m for m in self._joiners.values() if m.id not in view and m.id not in evicted]
        members = (*staying, *joining)[: self._settings.members_max]
        self._joiners.clear()
        return View(view.counter + 1, self._me.id, members) if members != view.members else None

    # -- our view, at the members

    def installed(self) -> None:
        """A view is installed: nobody lacks ours, and merges start over."""
        self._behind.clear()
        self._merging.clear()
        self._repeat_at = NEVER

    def lead(self, view: View, now: float) -> None:
        """The view is ours: repeat it to all members until they confirm it."""
        self._behind = set(view.ids) - {self._me.id}
        self._repeat_at = now + self._settings.repeat_s

    def confirm(self, member: bytes) -> None:
        """A member has our view."""
        self._behind.discard(member)

    def due_repeats(self, now: float) -> list[bytes]:
        """The members to send our view to again, if that is due."""
        if self._repeat_at > now:
            return []
        self._repeat_at = now + self._settings.repeat_s if self._behind else NEVER
        return sorted(self._behind)

    def stand_down(self) -> None:
        """Another member coordinates."""
        self._change_at = self._repeat_at = NEVER

    # -- merging

    def ask_merge(self, peer: bytes, now: float) -> None:
        """We ask another group for its view."""
        self._merging[peer] = now + self._settings.beat_s

    def take_merge(self, peer: bytes, now: float) -> bool:
        """True if we asked this peer for its view, and not too long ago."""
        return self._merging.pop(peer, 0.0) > now

    def merged_view(self, ours: View, theirs: View, evicted: Collection[bytes]) -> View:
        """The view with the members of both groups, ours first."""
        known = set(ours.ids) | set(evicted)
        members = (*ours.members, *(member for member in theirs.members if member.id not in known))
        counter = max(theirs.counter, ours.counter) + 1
        return View(counter, self._me.id, members[: self._settings.members_max])
