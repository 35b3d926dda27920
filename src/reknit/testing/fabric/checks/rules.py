"""What must hold with dead letters, redrives, retention and rules. Each check's first line is its promise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from reknit.dead_letter import DeadLetterContent
from reknit.ledger import account_pattern
from reknit.private_topics import public_topic
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.programs.program import Scene
from reknit.testing.fabric.record import REDRIVEN, Seen, Sent
from reknit.testing.fabric.replacements import is_forgotten
from reknit.testing.fabric.rules import protects_owed


def is_dead_letter(scene: Scene, seen: Seen, sent: Sent) -> bool:
    """Whether an event ended as a dead letter for a subscriber, before it ever got it."""
    if (seen.name, sent.payload) not in scene.record.ends:
        for node in scene.fabric.nodes.values():
            scene.record.read_letters(node)
    if (seen.name, sent.payload) in scene.record.ends:
        return True
    if scene.plan.step_rate and ("", sent.payload) in scene.record.ends:
        return (
            True  # a node refuses events from too far in the future, also those that its neighbour has stored
        )
    ends = scene.record.ends if scene.feeds else ()  # a relay or a bridge was not allowed to wait
    return any(name.startswith(("relay/", "route/")) and sent.payload == payload for name, payload in ends)


def is_refused(scene: Scene, topic: str, source: bytes, start: int, stop: int) -> bool:
    """Whether a node refused events as too far in the future, after the clock of a host was set."""
    for node in scene.fabric.nodes.values() if scene.plan.step_rate else ():
        scene.record.read_letters(node)
    refused = {(one.topic, one.id) for one in scene.record.letters.values() if not one.subscriber}
    return all((topic, f"{source.hex()}:{seq}") in refused for seq in range(start, stop))


def may_be_withheld(scene: Scene, seen: Seen, sent: Sent) -> bool:
    """A nameless subscriber is not owed events that are past their ttl, nor told of them."""
    return not seen.is_durable and sent.topic.startswith("car/") and bool(scene.plan.ttl_ms)


def losses_are_counted(scene: Scene, seen: Seen, sent: Sent) -> bool:
    """Whether an event that nobody got is lost with a disk or by retention: its id is not known, but its topic's losses.

    A node on the way that lost its disk may say that it has no event any more which its neighbour waits for.
    """
    may_lose = scene.replaced or not protects_owed(scene.plan)
    return bool(may_lose) and any(topic == sent.topic for topic, *_ in seen.lost)


def open_dead_letters_are_held(scene: Scene) -> Iterator[str]:
    """A dead letter that was neither redriven nor dropped can be read, whatever retention removes."""
    for node in scene.fabric.nodes.values():
        scene.record.read_letters(node)
        letters, admin = node.node.core.dead_letters, node.node.core.dead_letter_admin
        held = {number for number, _ in admin.page({"limit": 1000})["letters"]}
        waiting = letters.letters.waiting(letters.published).ranges()
        missing = [seq for bounds in waiting for seq in range(*bounds) if seq not in held]
        if missing and len(held) < 1000:
            yield f"{node.name}: dead letters {missing[:5]} wait and can't be read"
        elif len(held) < 1000 and len(held) != letters.waiting.count:
            yield f"{node.name}: {letters.waiting.count} dead letters wait, and {len(held)} can be read"


def redriven_once(scene: Scene) -> Iterator[str]:
    """A dead letter is redriven at most once, with the payload of its event."""
    if scene.replaced:
        return  # a node may have forgotten that it did that
    for node in scene.fabric.nodes.values():
        scene.record.read_letters(node)
    owed = Counter(_kind(letter) for letter in scene.record.letters.values())
    came = Counter(
        (topic, headers[REDRIVEN], headers["redriven-for"], int(headers["redriven-count"]))
        for (topic, _, _), headers in scene.record.redriven.items()
    )
    for kind, count in came.items():
        if count > owed[kind]:
            yield f"{kind} was redriven {count} times, of {owed[kind]} dead letters"


def _kind(letter: DeadLetterContent) -> tuple[str, str, str, int]:
    return public_topic(letter.topic), letter.original or letter.id, letter.subscriber, letter.redriven + 1


def redriven_events_arrive(scene: Scene) -> Iterator[str]:
    """Every durable subscriber gets every event that was redriven on its topics, or is told that it is lost."""
    linked = [node for node in scene.fabric.nodes.values() if node.name not in scene.outposts]
    for node in linked:
        for (topic, source), seqs in _redriven(node):
            for seen in scene.record.seen.values():
                if (
                    seen.is_durable
                    and seen.node not in scene.outposts
                    and not is_forgotten(scene.replaced, seen)
                    and account_pattern(seen.name, seen.pattern).matches(topic)
                ):
                    account = scene.fabric.nodes[seen.node].node.journal.ledger.accounts.get(seen.name)
                    ended = account.ended((topic, source)) if account is not None else None
                    for start, stop in seqs:
                        missing = list(ended.missing(start, stop)) if ended is not None else [(start, stop)]
                        if missing:
                            yield f"{seen.name} never got {missing} redriven on {topic} at {node.name}"


def _redriven(node: FabricNode) -> Iterator[tuple[tuple[str, bytes], list[tuple[int, int]]]]:
    last = node.node.core.dead_letters.letters.last
    if last is not None:
        series = (last.topic, last.source)
        published = node.node.journal.ledger.published.get(series)
        if published is not None:
            yield series, list(published.ranges())


def streams_are_whole(scene: Scene) -> Iterator[str]:
    """A stream that is said to be accepted was read to its end, and one that is said to be released was not."""
    for film in scene.record.films.values():
        if film.result == "ACCEPTED" and not film.readers:
            yield f"{film.name} was said to be accepted, and nobody read it to its end"
        if film.result in ("RELEASED", "REJECTED", "GIVEN UP") and film.readers:
            yield f"{film.name} is {film.result}, and {film.readers} read it to its end"
        if film.result == "ACCEPTED" and len(film.readers) > 1 and not scene.replaced:
            yield f"{film.name} was accepted by {film.readers}"


RULE_CHECKS = (streams_are_whole, open_dead_letters_are_held, redriven_once, redriven_events_arrive)
