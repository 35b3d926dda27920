"""What must hold for the clients of gateways; see `reknit.testing.fabric.checks.events`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from reknit.testing.fabric.programs.program import Scene
from reknit.testing.fabric.record import Reading
from reknit.testing.fabric.replacements import may_be_gone
from reknit.topic import Pattern


def tunnels_resume(scene: Scene) -> Iterator[str]:
    """Everything that is stored after a tunnel is live comes once, or its client was told that it can't resume."""
    for reading in scene.record.readings:
        if not reading.is_over:
            for payload in unread(scene, reading):
                yield f"{reading.name} never read {payload!r}, and was not told that it can't resume"
        lives = (
            [sum((Counter(life) for life in reading.lives), Counter())]
            if reading.is_strict
            else reading.lives
        )
        for payload, count in ((payload, count) for life in lives for payload, count in life.items()):
            sent = scene.record.sent.get(payload)
            if sent is not None and count > sent.copies_max:
                yield f"{reading.name} read {payload!r} {count} times"


def unread(scene: Scene, reading: Reading) -> Iterator[bytes]:
    """The events that a tunnel still has to bring: those published at its node, unless they went with its disk.

    Redriven events have no program at some node, and are recorded under names that a tunnel does not show.
    """
    pattern = Pattern(reading.pattern)
    for sent in scene.record.sent.values():
        is_owed = sent.is_stored and sent.put_at > reading.live_at and pattern.matches(sent.topic)
        is_here = scene.homes.get(sent.publisher) == reading.node
        if is_owed and is_here and not may_be_gone(scene.replaced, reading.node, sent):
            yield from () if any(sent.payload in life for life in reading.lives) else (sent.payload,)


def is_hostile(topic: str) -> bool:
    """Whether only hostile peers use a topic. They settle nothing."""
    return topic.startswith(("evil", "up/evil"))


def no_traceback_is_logged(scene: Scene) -> Iterator[str]:
    """Whatever a peer sends, no internal error is logged: it is answered, or its connection closed."""
    yield from scene.fabric.logged


def echoes_arrive(scene: Scene) -> Iterator[str]:
    """A message to a dynamic address that was accepted comes to the link that the address was made for."""
    for text, has_come in scene.record.echoes.items():
        if not has_come:
            yield f"{text!r} was accepted, and did not come"


GATEWAY_CHECKS: Final = (tunnels_resume, no_traceback_is_logged, echoes_arrive)
