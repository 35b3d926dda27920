"""The demo's fabric: a node, publishers and subscribers as processes, the faults, and the check of the result."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Any, Protocol

from reknit.client.blocking.session import SyncSession, connect_sync
from reknit.config import Config, TransportSettings
from reknit.errors import LocalError, NotConnected
from reknit.processes.process import NodeProcess, Process, free_port
from reknit.processes.workers import ReceivedEvents, publisher_command, subscriber_command
from reknit.topic import Pattern

RATE = 40_000.0
REJECT_EVERY = 1_000
LIVE_RATE = 300.0
"""Events a second of each publisher, as long as somebody watches."""
LIVE_PAUSE_S = 15.0
PAUSE_S = 0.4
REFRESH_S = 0.1
PATIENCE_S = 90.0

PUBLISHERS = {"line1": "plant/line1/temp", "line2": "plant/line2/temp"}
SUBSCRIBERS = {"audit": "plant/**", "alarms": "plant/line1/*", "strict": "plant/**"}
OWED = {
    (name, topic)
    for name, pattern in SUBSCRIBERS.items()
    for topic in PUBLISHERS.values()
    if Pattern(pattern).matches(topic)
}
"""Every subscriber with each topic whose events it is owed."""


class DemoObserver(Protocol):
    """Shows the progress of the demo. `DemoScreen` is one."""

    def tell(self, text: str) -> None:
        """Report an action."""

    def show(self) -> None:
        """Refresh the figures."""


@dataclass(frozen=True)
class DemoResult:
    """The result of the demo."""

    rows: list[dict[str, Any]]
    published: int
    dead_letters: int
    repeated: int
    problems: list[str]


class DemoFabric:
    """A small fabric. Call `start`, `inject_faults`, `settle` and `result`, in this order, within a `with` block."""

    def __init__(self, folder: Path, count: int, seed: int) -> None:
        self.folder = folder
        self.count = count
        self.console = f"http://127.0.0.1:{free_port()}/" if find_spec("httptools") is not None else ""
        """Where the console is; empty without what it needs."""
        served = ("--http", self.console.removeprefix("http://").rstrip("/")) if self.console else ()
        self.node = NodeProcess(folder, *served)
        self.publishers = [self._publisher(name, topic, count, RATE) for name, topic in PUBLISHERS.items()]
        self.subscribers = [self._subscriber(name, pattern) for name, pattern in SUBSCRIBERS.items()]
        self.processes: list[Process] = [self.node, *self.publishers, *self.subscribers]
        self.status: dict[str, Any] = {}
        self.rows: list[dict[str, Any]] = []
        self._rng = Random(seed)
        self._duplicates_before = 0
        self._session: SyncSession | None = None

    def _publisher(self, name: str, topic: str, count: int, rate: float) -> Process:
        return Process(name, publisher_command(self.node.url, name, topic, count, rate), self.folder)

    def _subscriber(self, name: str, pattern: str) -> Process:
        reject_every = REJECT_EVERY if name == "strict" else 0
        command = subscriber_command(self.node.url, name, pattern, self._record(name), reject_every)
        return Process(name, command, self.folder)

    def _record(self, name: str) -> Path:
        return self.folder / f"{name}.received"

    def __enter__(self) -> DemoFabric:
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
        """The number of events that the publishers will publish."""
        return self.count * len(self.publishers)

    @property
    def published(self) -> int:
        """The number of events that the node has stored so far."""
        rows = self.status.get("topics", ())
        return sum(row["events"] for row in rows if row["topic"] in PUBLISHERS.values())

    @property
    def duplicates(self) -> int:
        """The number of events that the node received twice, over all its runs."""
        return self._duplicates_before + int(self.status.get("intake", {}).get("duplicates", 0))

    def kills_text(self) -> str:
        counts = Counter({process.name: process.kills for process in self.processes if process.kills})
        return ", ".join(f"{name} {count}" for name, count in counts.items()) or "nothing"

    # -- the run

    def start(self, observer: DemoObserver) -> None:
        """Start all processes."""
        self.node.start()
        # A demo is short, so this session reconnects soon after the node was killed.
        config = Config(transport=TransportSettings(reconnect_backoff_s_max=0.2))
        self._session = connect_sync(self.node.url, config=config).open()
        observer.tell(f"node started on {self.node.url}, its journal in {self.node.data.name}")
        if self.console:
            observer.tell(f"watch it in a browser: {self.console}")
        for process in (*self.subscribers, *self.publishers):
            process.start()
        observer.tell(f"{len(self.subscribers)} subscribers and {len(self.publishers)} publishers started")

    def inject_faults(self, kills: int, observer: DemoObserver) -> None:
        """Kill a publisher, the node and a subscriber in turn, spread over the time that events flow."""
        kinds: list[list[Process]] = [self.publishers, [self.node], self.subscribers]
        for number, kind in enumerate(islice(cycle(kinds), kills)):
            self._wait(observer, int(self.total * (number + 0.5) / (kills + 0.5)))
            # On a busy machine a publisher may have finished by now: then the node is killed.
            running = [process for process in kind if process.is_running] or [self.node]
            self._kill(self._rng.choice(running), observer)

    def _kill(self, victim: Process, observer: DemoObserver) -> None:
        self._refresh()
        if victim is self.node:
            self._duplicates_before = self.duplicates
            self.status.pop("intake", None)
        victim.kill()
        observer.tell(f"kill -9 {victim.name} after {self.published:,} events")
        self._sleep(PAUSE_S, observer)
        victim.start()
        observer.tell(f"{victim.name} started again")

    def settle(self, observer: DemoObserver) -> None:
        """Wait until everything is published and nothing is in flight."""
        self._wait(observer, self.total)
        for process in self.publishers:
            process.wait(PATIENCE_S)
        observer.tell("every event is published")
        deadline = time.monotonic() + PATIENCE_S
        while not self._is_settled():
            self._sleep(REFRESH_S, observer)
            if time.monotonic() > deadline:
                observer.tell("some events are still in flight")
                return
        observer.tell("every event has ended: accepted, or a dead letter")

    def _is_settled(self) -> bool:
        """Whether nothing is in flight. A subscriber that is still starting has no row yet."""
        rows = {(row["subscriber"], row["topic"]) for row in self.rows}
        return rows >= OWED and not any(row["in_flight"] for row in self.rows)

    def _wait(self, observer: DemoObserver, count: int) -> None:
        """Wait until this many events are published."""
        deadline = time.monotonic() + PATIENCE_S
        while self.published < count:
            self._sleep(REFRESH_S, observer)
            dead = [process for process in self.processes if process.code not in (None, 0)]
            if dead or time.monotonic() > deadline:
                names = ", ".join(f"{process.name} exited on its own: {process.output()}" for process in dead)
                raise LocalError(
                    f"the demo cannot continue: {names or f'no progress within {PATIENCE_S:.0f} s'}"
                )

    def _sleep(self, seconds: float, observer: DemoObserver) -> None:
        deadline = time.monotonic() + seconds
        while (rest := deadline - time.monotonic()) > 0:
            time.sleep(min(rest, REFRESH_S))
            self._refresh()
            observer.show()

    def _refresh(self) -> None:
        """Update the figures, if the node can be reached."""
        assert self._session is not None
        with suppress(NotConnected):
            self.status, self.rows = self._session.status(), self._session.ledger()

    # -- as long as somebody watches

    def go_on(self, observer: DemoObserver, pause_s: float = LIVE_PAUSE_S, kills_max: int = 0) -> None:
        """Publish at an easy rate, and kill a process now and then, until Ctrl-C or so many kills."""
        for process in self.publishers:
            self.processes.remove(process)
        self.publishers = [self._publisher(name, topic, 0, LIVE_RATE) for name, topic in PUBLISHERS.items()]
        self.processes += self.publishers
        for process in self.publishers:
            process.start()
        observer.tell("publishers go on; every process is killed now and then, until Ctrl-C")
        count = 0
        while not kills_max or count < kills_max:
            self._sleep(pause_s, observer)
            self._kill(self._rng.choice([self.node, *self.publishers, *self.subscribers]), observer)
            count += 1

    # -- the result

    def result(self) -> DemoResult:
        """Compare the published events, the ledger, and the events that the subscribers recorded themselves."""
        self._refresh()
        rows = [row for row in self.rows if row["topic"] in PUBLISHERS.values()]
        problems = [
            f"{row['subscriber']} on {row['topic']} does not balance" for row in rows if not row["balanced"]
        ]
        repeated = 0
        for subscriber in self.subscribers:
            received = ReceivedEvents(self._record(subscriber.name))
            repeated += received.repeated
            problems += self._missing(subscriber.name, received)
        for row in rows:
            if row["published"] != self.count or row["lost"] or row["in_flight"]:
                problems.append(f"{row['subscriber']} on {row['topic']} is not complete: {row}")
        dead_letters = sum(row["dead_lettered"] for row in rows)
        return DemoResult(rows, self.published, dead_letters, repeated, problems)

    def _missing(self, name: str, received: ReceivedEvents) -> list[str]:
        owed = [topic for topic in PUBLISHERS.values() if (name, topic) in OWED]
        return [
            f"{name} never received {topic} {low} to {high - 1}"
            for topic in owed
            for low, high in received.missing(topic, self.count)
        ]
