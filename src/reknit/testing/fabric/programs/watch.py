"""Watches what one durable subscriber gets, and says at once which promise was broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reknit.testing.fabric.programs.program import Scene
from reknit.testing.fabric.record import EventId, Seen, key_of

Lane = tuple[str, str | bytes]
"""A topic, and the source or the key whose events stay in order."""


class DeliveryWatch:
    """Order on ordered topics, and outcomes that must not return."""

    def __init__(self, scene: Scene, seen: Seen, is_member: bool = False) -> None:
        self._scene, self._seen = scene, seen
        self._is_member = is_member
        """Whether it is a member of a queue: what it accepted may come again, if its connection was lost before."""
        self._back: dict[Lane, EventId] = {}
        """The first event of each lane that was given back and has not come again."""
        self._accepted: dict[EventId, None] = {}
        """Accepted in this life of the program."""
        self._confirmed: dict[EventId, None] = {}
        """Accepted, and the node said that it is stored."""
        self._is_settled: Callable[[], bool] = bool

    def begin(self, is_settled: Callable[[], bool]) -> None:
        """The program starts: what the node has of it is known from the confirmed outcomes alone.

        `is_settled` says whether the node has stored every outcome.
        """
        self._is_settled = is_settled
        self._back.clear()
        self._accepted.clear()

    def taken(self, event: Any) -> None:
        """The program got an event."""
        event_id = _id(event)
        if any(one.node == self._seen.node for one in self._scene.replaced):
            return  # its node may have forgotten everything that it knew
        if self._is_settled():
            self._confirmed |= self._accepted
        if (
            not self._scene.plan.lease_s and not self._is_member
        ):  # it may have ended, and the next attempt is on its way
            if event_id in self._accepted:
                self._blame(event, "which it had accepted")
            elif event_id in self._confirmed:
                self._blame(event, "which it had accepted before a restart, and the node confirmed it")
        lane = self._lane(event)
        back = self._back.get(lane) if lane else None
        if lane and back and (back == event_id or self._has_ended(back)):
            del self._back[lane]
        elif back and not self._may_come_first(event_id, back):
            self._blame(event, f"while {back} of the same order waited to be delivered again")

    def _may_come_first(self, event_id: EventId, back: EventId) -> bool:
        """An earlier event that the program never settled comes again when its lease ends."""
        is_same_series = event_id[:2] == back[:2]
        return bool(self._scene.plan.lease_s) and (not is_same_series or event_id[2] < back[2])

    def accepted(self, event: Any) -> None:
        """The program accepts it."""
        if not self._is_member:
            self._accepted[_id(event)] = None

    def given_back(self, event: Any) -> None:
        """The program released it, or failed."""
        if lane := self._lane(event):
            self._back[lane] = _id(event)

    def _lane(self, event: Any) -> Lane | None:
        plan = self._scene.plan
        order: str = plan.order if event.topic.startswith("plant/") else "none"
        if self._is_member and plan.queue_order:
            order = plan.queue_order
        if order == "none":
            return None
        has_key = order == "key" and "key" in event.batch.columns()
        return event.topic, key_of(bytes(event.payload)) if has_key else event.source

    def _has_ended(self, event_id: EventId) -> bool:
        topic, source, seq = event_id
        ledger = self._scene.fabric.nodes[self._seen.node].node.journal.ledger
        account = ledger.accounts.get(self._seen.name)
        return account is not None and seq in account.ended((topic, source))

    def _blame(self, event: Any, why: str) -> None:
        self._scene.record.blame(f"{self._seen.name} received {event.topic} {event.id} {why}")


def _id(event: Any) -> EventId:
    return event.topic, event.source, event.seq
