"""Alignment with another node: fetches the events that it holds and this node lacks.

What is compared, fetched and stored where is decided by `reknit.protocol.replication.alignment_rounds`, which the core
runs as one of its parts. Older events are stored beside the journal; see `reknit.node.recovery.aligned`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any, Final, assert_never

import msgspec

from reknit.config import Config
from reknit.connection.remote_cache import RemoteCache
from reknit.decoding import UNREADABLE
from reknit.errors import JournalError, Refused, ReknitError
from reknit.node.recovery.aligned import AlignedEvents
from reknit.node.recovery.remote_replies import RemoteReplies
from reknit.node.replication.local_publisher import MakePublisher
from reknit.node.replication.remote_session import ConnectSession
from reknit.node.replication.replicator import Runner
from reknit.node.replication.visited_nodes import VisitedReports
from reknit.outcome import Code
from reknit.protocol.machine import Peer
from reknit.protocol.recovery.alignment import (
    AskBuckets,
    AskDigest,
    AskSpans,
    BucketFingerprints,
    Digest,
    HeldSpans,
)
from reknit.protocol.recovery.cache_inputs import AskRemote, Remote
from reknit.protocol.recovery.search import SearchSettings
from reknit.protocol.replication.alignment_rounds import (
    AlignmentRounds,
    Ask,
    BeginRound,
    Effect,
    Input,
    PublishFetched,
    RoundEnded,
    RoundFailed,
    SaveBeside,
    Saved,
    StoreBeside,
)
from reknit.topic import Pattern
from reknit.trust.own_token import own_token

log = logging.getLogger("reknit.node")

LEVELS: Final[dict[type[Ask], tuple[str, type[Digest | BucketFingerprints | HeldSpans]]]] = {
    AskDigest: ("digest", Digest),
    AskBuckets: ("buckets", BucketFingerprints),
    AskSpans: ("rows", HeldSpans),
}
"""By question: the level of the comparison, and the type of its answer."""


class Aligner:
    """Keeps this node aligned with one other, every `recovery.align_s` or when `align` is called."""

    def __init__(
        self,
        url: str,
        pattern: str = "**",
        *,
        config: Config,
        name: str,
        runner: Runner,
        connect: ConnectSession,
        make_publisher: MakePublisher,
        aligned: AlignedEvents,
    ) -> None:
        self.url = url
        self.fetched = 0
        """Events that were lacking and were fetched."""
        self._runner = runner
        self._aligned = aligned
        self._pattern = Pattern(pattern)
        settings, token = config.recovery, own_token(config.security)
        ask_s = settings.ask_timeout_s
        self._machine = AlignmentRounds(
            url,
            self._pattern.text,
            existing=runner.core.journal.ledger.existing,
            settings=SearchSettings(ask_s, ask_s, settings.ask_bytes_max),
            interval_s=settings.align_s,
        )
        self._session = connect(url, config=config, token=token, wait_s=ask_s)
        self._cache = RemoteCache(url, f"aligner/{name}", config, token)
        self._publisher = make_publisher(f"aligner/{url}", lambda batch: None)
        self._visited = VisitedReports(self._publisher.tell)
        self._now = asyncio.get_running_loop().time
        self._effects: list[Effect] = []
        self._steps: asyncio.Queue[Ask | SaveBeside | RoundEnded] = asyncio.Queue()
        """Effects of a round that take a while, and its end."""
        self._is_due = asyncio.Event()
        self._is_open = False
        self._task: asyncio.Task[None] | None = None
        runner.core.parts.add(self._key, self)

    @property
    def _key(self) -> str:
        return f"aligner of {self.url} for {self._pattern.text}"

    async def start(self) -> None:
        """Align at intervals."""
        self._machine.schedule(self._now())
        self._task = asyncio.create_task(self._run())
        self._runner.run_machines()

    async def stop(self) -> None:
        """Stop, and disconnect."""
        self._runner.core.parts.remove(self._key)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._is_open:
            await self._session.close()
            await self._publisher.close()
        await self._cache.close()

    async def _run(self) -> None:
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            with suppress(ReknitError, OSError, TimeoutError):
                await self.align()

    async def align(self) -> int:
        """Compare and fetch once; returns how many events were fetched. Raises `ReknitError` without an answer."""
        before = self.fetched
        try:
            await self._open()
            self._steps = asyncio.Queue()
            self._machine.begin(await self._aligned.holdings(self._pattern), self._now())
            self._run_machine()
            while not isinstance(step := await self._steps.get(), RoundEnded):
                self._feed(await self._take(step))
        except BaseException:
            self._feed(RoundFailed())
            raise
        if not step.is_comparable:
            log.warning("%s holds other topics: not aligned", self.url)
        return self.fetched - before

    async def _open(self) -> None:
        if not self._is_open:
            await self._session.open()
            await self._publisher.open()
            self._is_open = True

    async def _take(self, step: Ask | SaveBeside) -> Input:
        """A step that takes a while; returns the machine's next input."""
        if isinstance(step, SaveBeside):
            await self._aligned.save()
            return Saved()
        level, kind = LEVELS[type(step)]
        buckets = step.buckets if isinstance(step, AskSpans) else []
        args: dict[str, Any] = {"level": level, "pattern": self._pattern.text, "buckets": buckets}
        answer = await self._session.ask("align", **args)
        try:
            found = msgspec.convert(answer, kind)
        except UNREADABLE as error:
            text = f"the answer of {self.url} to `align` ({level}) is not valid: {error}"
            raise Refused(Code.INVALID_ARGUMENT, text) from None
        await self._tell_visited(found)
        return found

    async def _tell_visited(self, found: Digest | BucketFingerprints | HeldSpans) -> None:
        """Tell this node where the sources have been that it may get now for the first time."""
        spans = (
            found.hot if isinstance(found, Digest) else found.spans if isinstance(found, HeldSpans) else []
        )
        is_new = [span.source for span in spans if self._runner.core.intake.expected(span.source) == 1]
        await self._visited.tell(self._session, is_new)

    def _feed(self, message: Input, peer: Peer = "") -> None:
        self._machine.receive(message, peer, self._now())
        self._run_machine()

    def _run_machine(self) -> None:
        self._effects += self._machine.take_effects()
        self._runner.run_machines()

    def _reply(self, message: Remote, url: Peer) -> None:
        self._feed(message, url)

    # -- a part of the core

    def receive(self, message: Any, peer: Peer, now: float) -> None:
        """What this node's journal and connections report does not concern an alignment."""

    def tick(self, now: float) -> None:
        """Time passed."""
        self._machine.tick(now)
        self._effects += self._machine.take_effects()

    def next_deadline(self) -> float | None:
        """When `tick` is due next."""
        return self._machine.next_deadline()

    @property
    def is_due(self) -> bool:
        """Whether there are effects to perform."""
        return bool(self._effects)

    def perform(self, now: float) -> None:
        """Perform the effects that wait."""
        effects, self._effects = self._effects, []
        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case AskDigest() | AskBuckets() | AskSpans() | SaveBeside() | RoundEnded():
                self._steps.put_nowait(effect)
            case AskRemote(search=search):
                ask = (effect.number, effect.series, effect.ranges, effect.bytes_max)
                self._cache.recover(RemoteReplies(search, self._reply), *ask)
            case PublishFetched(batch=batch):
                self._publisher.put([batch])
                self.fetched += batch.count
            case StoreBeside(batch=batch):
                try:
                    self.fetched += self._aligned.put(batch)
                except JournalError as error:
                    log.warning("events that an alignment fetched are left for the next one: %s", error)
            case BeginRound():
                self._is_due.set()
            case _:
                assert_never(effect)
