"""Finds events in a node's journal by the ids that applications gave them."""

from __future__ import annotations

from dataclasses import dataclass

from reknit.batch import Batch, Event
from reknit.client.session import Session
from reknit.envelope.columns import has_attributes, read_loosely
from reknit.private_topics import public_topic
from reknit.topic import Pattern


@dataclass(frozen=True, slots=True)
class EventSearch:
    """What to look for: the parts that are empty do not count."""

    message_id: str = ""
    """The header `message-id`, which is that of AMQP, or uProtocol's id."""
    correlation: str = ""
    """The header `correlation-id`, or the id of the request that an event responds to."""
    topic: Pattern | None = None
    since_us: int = 0

    def within(self, batch: Batch) -> list[Event]:
        """The events of a batch that match."""
        if self.topic is not None and not self.topic.matches(public_topic(batch.topic)):
            return []
        columns = batch.event_columns
        if "headers" not in columns and not has_attributes(batch):
            return []
        attributes = read_loosely(batch) if has_attributes(batch) else []
        found = []
        for at, event in enumerate(batch.events()):
            names = event.headers
            ids, correlations = {names.get("message-id", "")}, {names.get("correlation-id", "")}
            if at < len(attributes) and (one := attributes[at]) is not None:
                ids.add(str(one.id))
                correlations.add(str(one.reqid or ""))
            if (not self.message_id or self.message_id in ids) and (
                not self.correlation or self.correlation in correlations
            ):
                found.append(event)
        return found


async def find_events(session: Session, wanted: EventSearch, limit: int) -> list[Event]:
    """The first events that match, at most `limit`. The journal is read from the node in parts."""
    place = await session.ask("span", **({"time_us": wanted.since_us} if wanted.since_us else {}))
    position = place.get("position", place["start"])
    found: list[Event] = []
    while position < place["end"] and len(found) < limit:
        body, data = await session.ask_raw("read", position=position, stop=place["end"])
        at = 0
        while at < len(data):
            batch = Batch.parse(data, at)
            found += wanted.within(batch)
            at += batch.head.length
        if body["next"] <= position:
            break
        position = body["next"]
    return found[:limit]
