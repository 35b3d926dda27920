"""Programs without asyncio: they publish, subscribe, request and serve with the blocking client, in threads."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from typing import Any, Final

from reknit.client.blocking.session import SyncSession
from reknit.errors import Aborted, RequestFailed, Undelivered
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.programs.program import (
    EXPECTED,
    ListeningProgram,
    Program,
    Scene,
)
from reknit.testing.fabric.programs.services import SERVICE, TTL_MS
from reknit.testing.fabric.programs.stored_events import stored_events_are_durable
from reknit.testing.fabric.programs.streams import NAME, PIECES_MAX
from reknit.testing.fabric.programs.streams import TOPIC as FILMS
from reknit.testing.fabric.record import Seen, Sent
from reknit.testing.fabric.virtual.threads import ProgramThread

TOPICS: Final = ("plant/a", "car/1")
JOBS: Final = "jobs/x"
GIVE_UP_SHARE: Final = 0.2


def blocking_programs(scene: Scene) -> list[Program]:
    """The programs of a plan that use the blocking client."""
    rng, nodes = scene.fabric.rng("blocking"), list(scene.fabric.nodes.values())
    made: list[Program] = []
    for at in range(scene.plan.blocking):
        made.append(BlockingSubscriber(scene, f"bs{at}", rng.choice(nodes), rng.choice(("plant/*", "car/*"))))
        made.append(BlockingPublisher(scene, f"bp{at}", rng.choice(nodes), rng.choice(TOPICS)))
        made.append(BlockingReader(scene, f"bf{at}", rng.choice(nodes)))
        made.append(BlockingService(scene, f"bv{at}", rng.choice(nodes)))
        made.append(BlockingRequester(scene, f"br{at}", rng.choice(nodes)))
    return made


class BlockingProgram(Program):
    """Runs `work` in a thread, again and again until it ends in order."""

    is_over = False
    """Whether it ended in order."""

    async def live(self) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        thread = ProgramThread(self.host)
        thread.start(lambda: self._guarded(thread, over))
        await over

    def _guarded(self, thread: ProgramThread, over: asyncio.Future[None]) -> None:
        try:
            self.work(thread)
        except EXPECTED as error:
            over.set_exception(error)
        except Exception as error:
            self.scene.record.blame(f"{self.name} failed: {''.join(traceback.format_exception(error))}")
            over.set_result(None)
        else:
            over.set_result(None)

    def work(self, thread: ProgramThread) -> None:
        """What it does in a life."""
        raise NotImplementedError

    def connect(self, thread: ProgramThread, name: str = "") -> SyncSession:
        """A blocking session with this program's node."""
        return SyncSession(lambda: self.session(name), start_thread=lambda: thread)


class BlockingPublisher(BlockingProgram):
    """Publishes with every call that there is, and sends jobs whose outcomes it waits for."""

    def __init__(self, scene: Scene, name: str, node: FabricNode, topic: str) -> None:
        super().__init__(scene, name, node)
        self.topic = topic
        self._count = 0

    @property
    def is_done(self) -> bool:
        return self.is_over

    def work(self, thread: ProgramThread) -> None:
        has_jobs = self.scene.plan.senders and self.scene.plan.workers
        with self.connect(thread) as session, session.publisher(self.topic) as publisher:
            jobs = session.publisher(JOBS, outcome=True, resend_released=True)
            films = session.publisher(FILMS, resend_released=True, ttl_ms=10_000)
            ways: list[tuple[Callable[[Any], None], Any]] = [
                (self._publish, publisher),
                (self._publish_many, publisher),
                (self._send, publisher),
                (self._stream, films),
                *([(self._job, jobs)] if has_jobs else []),
            ]
            while not self.scene.is_calm:
                way, through = self.rng.choice(ways)
                way(through)
                thread.sleep(self.rng.expovariate(self.scene.plan.put_rate))
        self.is_over = True

    def _publish(self, publisher: Any) -> None:
        [sent] = self._put(1)
        publisher.publish(sent.payload)
        self._stored(publisher, [sent])

    def _publish_many(self, publisher: Any) -> None:
        burst = self._put(self.rng.randint(1, self.scene.plan.burst_max))
        publisher.publish_many([sent.payload for sent in burst])
        self._stored(publisher, burst)

    def _send(self, publisher: Any) -> None:
        burst = self._put(self.rng.randint(1, self.scene.plan.burst_max))
        for sent in burst:
            publisher.send(sent.payload)
        publisher.flush()
        self._stored(publisher, burst)

    def _job(self, publisher: Any) -> None:
        [sent] = self._put(1, JOBS)
        try:
            self.scene.record.ended(sent, publisher.publish(sent.payload).name)
        except Undelivered as error:
            self.scene.record.ended(sent, type(error).__name__.upper())

    def _stream(self, publisher: Any) -> None:
        self._count += 1
        film = self.scene.record.film(f"{self.name} {self._count}")
        is_given_up = self.rng.random() < GIVE_UP_SHARE
        try:
            with publisher.stream({NAME: film.name}) as out:
                for at in range(self.rng.randint(1, PIECES_MAX)):
                    piece = f"{film.name} {at} ".encode().ljust(self.rng.randrange(30, 3000), b".")
                    film.written += piece
                    out.write(piece)
                if is_given_up:
                    out.abort()
            film.result = "GIVEN UP" if is_given_up else out.outcome.name
        except Undelivered as error:
            film.result = type(error).__name__.upper()

    def _put(self, count: int, topic: str = "") -> list[Sent]:
        first, self._count = self._count + 1, self._count + count
        return [
            self.scene.record.put(f"{self.name} {at} ".encode(), topic or self.topic, self.name)
            for at in range(first, first + count)
        ]

    def _stored(self, publisher: Any, burst: list[Sent]) -> None:
        self.scene.record.problems += stored_events_are_durable(self.scene, self.node, publisher, burst[-1])
        for sent in burst:
            self.scene.record.stored(sent)


class BlockingSubscriber(BlockingProgram, ListeningProgram):
    """A durable subscriber, which settles itself or lets the client accept."""

    def __init__(self, scene: Scene, name: str, node: FabricNode, pattern: str) -> None:
        super().__init__(scene, name, node)
        self.pattern = pattern
        self.seen = scene.record.seen[name] = Seen(name, pattern, node.name, True)

    def work(self, thread: ProgramThread) -> None:
        self.is_open = False
        is_auto = self.rng.random() < 0.5
        with (
            self.connect(thread) as session,
            session.subscribe(
                self.pattern, name=self.name, auto_accept=is_auto, on_lost=self._on_lost
            ) as events,
        ):
            self.is_open = True
            for event in events:
                name = self.scene.record.name(event)
                self.scene.record.received(self.seen, event.topic, event.source, event.seq, name)
                thread.sleep(self.think_s())
                if is_auto:
                    self.scene.record.accepted(self.seen, name)
                else:
                    self._settle(event, name)

    def _settle(self, event: Any, name: bytes) -> None:
        plan = self.scene.plan
        weights = (1.0, 0.0, 0.0) if self.scene.is_calm else (1.0, plan.release, plan.reject)
        settle: Callable[..., Any] = self.rng.choices((event.accept, event.release, event.reject), weights)[0]
        if settle == event.accept:
            self.scene.record.accepted(self.seen, name)
        elif settle == event.reject:
            self.seen.rejected.add(name)
        settle()

    def _on_lost(self, report: Any) -> None:
        self.seen.lost.append((report.topic, report.source, report.start, report.stop))


class BlockingReader(BlockingProgram, ListeningProgram):
    """Reads events in pieces, as a thread waits for each."""

    def work(self, thread: ProgramThread) -> None:
        self.is_open = False
        with (
            self.connect(thread) as session,
            session.subscribe(FILMS, auto_accept=False, streams=True) as events,
        ):
            self.is_open = True
            for event in events:
                self._read(events, event)

    def _read(self, events: Any, event: Any) -> None:
        film, read = self.scene.record.films[event.headers[NAME]], bytearray()
        try:
            for piece in events.pieces(event):
                read += piece
        except Aborted:
            return
        if film.result == "GIVEN UP" or read != film.written:
            self.scene.record.blame(
                f"{self.name} read {len(read)} of {len(film.written)} bytes of {film.name}"
            )
        film.readers.append(self.name)
        event.accept()


class BlockingService(BlockingProgram, ListeningProgram):
    """Answers requests from a function, which runs in a thread."""

    def work(self, thread: ProgramThread) -> None:
        self.is_open = False
        with self.connect(thread) as session, session.serve(SERVICE, self._answer, name=self.name) as service:
            self.is_open = True
            service.wait()

    def _answer(self, request: Any) -> bytes:
        text = request.payload.decode()
        served = self.scene.record.served
        served[text] = served.get(text, 0) + 1
        return f"re: {text}".encode()


class BlockingRequester(BlockingProgram):
    """Makes one request after the other, and asks its node how it is."""

    def __init__(self, scene: Scene, name: str, node: FabricNode) -> None:
        super().__init__(scene, name, node)
        self._count = 0

    @property
    def is_done(self) -> bool:
        return self.is_over

    def work(self, thread: ProgramThread) -> None:
        with self.connect(thread) as session:
            while not self.scene.is_calm:
                self._count += 1
                text = f"{self.name} {self._count}"
                answers = self.scene.record.replies.setdefault(text, [])
                try:
                    answers.append(session.request(SERVICE, text, ttl_ms=TTL_MS).payload.decode())
                except RequestFailed as error:
                    answers.append(f"failed: {error.code}")
                self._look(session)
                thread.sleep(self.rng.expovariate(self.scene.plan.put_rate))
        self.is_over = True

    def _look(self, session: SyncSession) -> None:
        """What a node tells of itself is true."""
        if session.status()["node"] != self.node.name:
            self.scene.record.blame(f"{self.name} asked {self.node.name}, and another one answered")
        for row in session.ledger("plant/**", unbalanced=True):
            self.scene.record.blame(f"{self.name} was told of a row that does not balance: {row}")
