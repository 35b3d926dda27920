"""The demo's fabric: a node, publishers and subscribers as processes, what is done to them, and what comes of it."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Any, Protocol

from reknit.client.blocking.session import SyncSession, connect_sync
from reknit.config import Config, TransportSettings
from reknit.errors import LocalError, NotConnected
from reknit.testing.processes import NodeProcess, Process
from reknit.testing.workers import Notes, publisher_command, subscriber_command

RATE = 40_000.0
REJECT_EVERY = 1_000
PAUSE_S = 0.4
LOOK_S = 0.1
PATIENCE_S = 90.0

PUBLISHERS = {"line1": "plant/line1/temp", "line2": "plant/line2/temp"}
SUBSCRIBERS = {"audit": "plant/**", "alarms": "plant/line1/*", "strict": "plant/**"}


class Audience(Protocol):
    """Who is shown what happens."""

    def tell(self, text: str) -> None:
        """Something was done."""

    def show(self) -> None:
        """Time passed."""


@dataclass(frozen=True)
class Verdict:
    """What came of it."""

    rows: list[dict[str, Any]]
    published: int
    dead_letters: int
    repeated: int
    problems: list[str]


class Fabric:
    """A small fabric. `start`, `break_it`, `settle`, then ask for the `verdict`; it runs until the `with` ends."""

    def __init__(self, folder: Path, count: int, seed: int) -> None:
        self.folder = folder
        self.count = count
        self.node = NodeProcess(folder)
        self.publishers = [self._publisher(name, topic) for name, topic in PUBLISHERS.items()]
        self.subscribers = [self._subscriber(name, pattern) for name, pattern in SUBSCRIBERS.items()]
        self.processes: list[Process] = [self.node, *self.publishers, *self.subscribers]
        self.status: dict[str, Any] = {}
        self.rows: list[dict[str, Any]] = []
        self._rng = Random(seed)
        self._duplicates_before = 0
        self._session: SyncSession | None = None

    def _publisher(self, name: str, topic: str) -> Process:
        return Process(name, publisher_command(self.node.url, name, topic, self.count, RATE), self.folder)

    def _subscriber(self, name: str, pattern: str) -> Process:
        reject_every = REJECT_EVERY if name == "strict" else 0
        command = subscriber_command(self.node.url, name, pattern, self._notes(name), reject_every)
        return Process(name, command, self.folder)

    def _notes(self, name: str) -> Path:
        return self.folder / f"{name}.notes"

    def __enter__(self) -> Fabric:
        return self

    def __exit__(self, *args: object) -> None:
        if self._session is not None:
            self._session.close()
        for process in reversed(self.processes):
            process.stop()

    # -- figures

    @property
    def kills(self) -> int:
        return sum(process.kills for process in self.processes)

    @property
    def total(self) -> int:
        """How many events there will be."""
        return self.count * len(self.publishers)

    @property
    def published(self) -> int:
        """How many events the node has kept by now."""
        rows = self.status.get("topics", ())
        return sum(row["events"] for row in rows if row["topic"] in PUBLISHERS.values())

    @property
    def duplicates(self) -> int:
        """How many events came twice, over all lives of the node."""
        return self._duplicates_before + int(self.status.get("intake", {}).get("duplicates", 0))

    def kills_text(self) -> str:
        counts = Counter({process.name: process.kills for process in self.processes if process.kills})
        return ", ".join(f"{name} {count}" for name, count in counts.items()) or "nobody"

    # -- what is done

    def start(self, audience: Audience) -> None:
        """Run everything."""
        self.node.start()
        # Looks again soon after the node was killed: a demo is short.
        quick = Config(transport=TransportSettings(reconnect_backoff_s_max=0.2))
        self._session = connect_sync(self.node.url, config=quick).open()
        audience.tell(f"node started on {self.node.url}, its journal in {self.node.data.name}")
        for process in (*self.subscribers, *self.publishers):
            process.start()
        audience.tell(f"{len(self.subscribers)} subscribers and {len(self.publishers)} publishers started")

    def break_it(self, kills: int, audience: Audience) -> None:
        """Kill a publisher, the node, a subscriber in turn, spread over the time that events flow."""
        kinds: list[list[Process]] = [self.publishers, [self.node], self.subscribers]
        for number, kind in enumerate(islice(cycle(kinds), kills)):
            self._wait(audience, int(self.total * (number + 0.5) / (kills + 0.5)))
            # On a busy machine a publisher may be done by now: then the node is the victim.
            running = [process for process in kind if process.is_running] or [self.node]
            self._kill(self._rng.choice(running), audience)

    def _kill(self, victim: Process, audience: Audience) -> None:
        self._look()
        if victim is self.node:
            self._duplicates_before = self.duplicates
            self.status.pop("intake", None)
        victim.kill()
        audience.tell(f"kill -9 {victim.name} after {self.published:,} events")
        self._sleep(PAUSE_S, audience)
        victim.start()
        audience.tell(f"{victim.name} started again")

    def settle(self, audience: Audience) -> None:
        """Wait until everything is published, and nothing is in flight any more."""
        self._wait(audience, self.total)
        for process in self.publishers:
            process.wait(PATIENCE_S)
        audience.tell("every event is published")
        deadline = time.monotonic() + PATIENCE_S
        while any(row["in_flight"] for row in self.rows) or not self.rows:
            self._sleep(LOOK_S, audience)
            if time.monotonic() > deadline:
                audience.tell("some events are still in flight")
                return
        audience.tell("every event has ended: accepted, or a dead letter")

    def _wait(self, audience: Audience, count: int) -> None:
        """Until so many events are published."""
        deadline = time.monotonic() + PATIENCE_S
        while self.published < count:
            self._sleep(LOOK_S, audience)
            dead = [process for process in self.processes if process.code not in (None, 0)]
            if dead or time.monotonic() > deadline:
                names = ", ".join(f"{process.name} ended by itself: {process.output()}" for process in dead)
                raise LocalError(f"the demo does not get on: {names or 'it takes too long'}")

    def _sleep(self, seconds: float, audience: Audience) -> None:
        deadline = time.monotonic() + seconds
        while (rest := deadline - time.monotonic()) > 0:
            time.sleep(min(rest, LOOK_S))
            self._look()
            audience.show()

    def _look(self) -> None:
        """See how it is, as far as the node is there."""
        assert self._session is not None
        with suppress(NotConnected):
            self.status, self.rows = self._session.status(), self._session.ledger()

    # -- what came of it

    def verdict(self) -> Verdict:
        """Compare what was published, what the ledger says, and what the subscribers themselves wrote down."""
        self._look()
        rows = [row for row in self.rows if row["topic"] in PUBLISHERS.values()]
        problems = [
            f"{row['subscriber']} on {row['topic']} does not balance" for row in rows if not row["balanced"]
        ]
        repeated = 0
        for subscriber in self.subscribers:
            notes = Notes(self._notes(subscriber.name))
            repeated += notes.repeated
            problems += self._missing(subscriber.name, notes)
        for row in rows:
            if row["published"] != self.count or row["lost"] or row["in_flight"]:
                problems.append(f"{row['subscriber']} on {row['topic']} has not come to an end: {row}")
        dead_letters = sum(row["dead_lettered"] for row in rows)
        return Verdict(rows, self.published, dead_letters, repeated, problems)

    def _missing(self, name: str, notes: Notes) -> list[str]:
        from reknit.topic import Pattern

        owed = [topic for topic in PUBLISHERS.values() if Pattern(SUBSCRIBERS[name]).matches(topic)]
        return [
            f"{name} never got {topic} {low} to {high - 1}"
            for topic in owed
            for low, high in notes.missing(topic, self.count)
        ]
