"""Strangers that talk to a node in any order, in virtual time, each step chosen in view of what the node answered.

Hypothesis chooses the steps: connect, greet, publish on, publish again, skip events, subscribe, settle what was
delivered, or something else, ask, and hang up. Beside them, a client publishes and subscribes, and must not notice.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from reknit.batch import Batch
from reknit.client.session import Session
from reknit.config import Config, HttpSettings, JournalSettings, TopicSettings
from reknit.outcome import Outcome
from reknit.testing.fabric.fabric import Fabric
from reknit.testing.fabric.nodes import PORT
from reknit.testing.fabric.virtual.logs import tracebacks
from reknit.topic import Pattern
from reknit.wire.codec import Decoder, Frames, encode
from reknit.wire.messages import (
    VERSION,
    Credit,
    Declare,
    DispositionRow,
    Hello,
    Ping,
    Settle,
    Start,
    Subscribe,
    Unsubscribe,
)
from reknit.wire.outcomes import Want
from reknit.wire.recovery import Heartbeat, Offer, Recover, Survey
from reknit.wire.streams import Abort, Begin, Piece, Room
from tests.real.test_bad_input import damaged, encoded

CONFIG = Config(
    journal=JournalSettings(kind="memory"),
    http=HttpSettings(),
    topics=(TopicSettings(pattern=Pattern("jobs/**"), distribution="balanced"),),
)
TOPICS = st.sampled_from(["evil/a", "evil/b", "jobs/x"])
SOURCES = st.sampled_from([b"s" * 16, b"t" * 16])
SEQS = st.sampled_from([0, 1, 1, 2, 3, 7, 1 << 40, (1 << 63) - 2])


class Stranger:
    """A connection, and what came on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.decoder = Decoder()
        self.delivered: list[tuple[str, bytes, int, int]] = []
        self.next = {b"s" * 16: 1, b"t" * 16: 1}

    async def hear(self) -> None:
        """Take what came."""
        while True:
            try:
                data = await asyncio.wait_for(self.reader.read(1 << 16), 0.02)
            except (TimeoutError, OSError):
                return
            if not data:
                return
            for item in self.decoder.feed(data):
                if isinstance(item, Frames):
                    self.delivered += [(one.topic, one.source, one.first, one.stop) for one in item.heads]


class ProtocolMachine(RuleBasedStateMachine):
    strangers = Bundle("strangers")

    def __init__(self) -> None:
        super().__init__()
        self.fabric = Fabric(seed=1)
        self.logs = tracebacks(self.fabric.logged)
        self.logs.__enter__()
        self.host = self.fabric.host("strangers")
        self.sent = 0
        self.got: list[bytes] = []
        self.fabric.run(self._start())

    async def _start(self) -> None:
        self.node = await self.fabric.start_node("a", CONFIG)
        host = self.fabric.host("canary")
        self.session: Session = await host.run(self.fabric.session(self.node.url).open())
        self.events: Any = self.session.subscribe("canary", name="canary")
        await host.run(self.events.__aenter__())

    def run(self, act: Any) -> Any:
        """Run something on the strangers' host, and let the canary beat."""
        result = self.fabric.run(self.host.run(act))
        self.fabric.run(self.fabric.host("canary").run(self._beat()))
        return result

    async def _beat(self) -> None:
        self.sent += 1
        await asyncio.wait_for(self.session.publish("canary", b"%d" % self.sent), 60)
        self.got.append((await asyncio.wait_for(anext(self.events), 60)).payload)

    async def _say(self, stranger: Stranger, *parts: Any) -> None:
        for part in parts:
            stranger.writer.write(part if isinstance(part, bytes) else encode(part))
        await stranger.hear()

    # -- steps

    @rule(target=strangers, is_introduced=st.booleans())
    def connect(self, is_introduced: bool) -> Any:
        async def open_one() -> Stranger:
            stranger = Stranger(*await asyncio.open_connection(self.node.host.address, PORT))
            await self._say(stranger, *([Hello(VERSION, "stranger")] if is_introduced else []))
            return stranger

        return multiple(self.run(open_one()))

    @rule(one=strangers, name=st.sampled_from(["stranger", "", "a"]))
    def greet(self, one: Stranger, name: str) -> None:
        self.run(self._say(one, Hello(VERSION, name)))

    @rule(one=strangers, source=SOURCES, topic=TOPICS, jump=st.sampled_from([0, 0, 0, -1, 1, 100]))
    def publish(self, one: Stranger, source: bytes, topic: str, jump: int) -> None:
        first = max(1, one.next[source] + jump)
        batch = Batch.build(source, topic, first, [b"x", b"y"], time_us=1)
        one.next[source] = first + 2
        self.run(self._say(one, bytes(batch.data)))

    @rule(one=strangers, source=SOURCES, topic=TOPICS, first=SEQS.filter(bool), kept=SEQS)
    def want(self, one: Stranger, source: bytes, topic: str, first: int, kept: int) -> None:
        self.run(self._say(one, Declare(source, topic), Want(source, topic, True, first, kept)))

    @rule(
        one=strangers,
        sub=st.integers(0, 2),
        topic=TOPICS | st.just("evil/**"),
        name=st.sampled_from(["", "", "durable"]),
        history=st.booleans(),
        streams=st.booleans(),
    )
    def subscribe(self, one: Stranger, sub: int, topic: str, name: str, history: bool, streams: bool) -> None:
        start = Start(history=history)
        self.run(self._say(one, Subscribe(sub, topic, name, start, 1 << 16, takes_streams=streams)))

    @rule(
        one=strangers, sub=st.integers(0, 2), number=st.integers(0, 4), outcome=st.sampled_from(list(Outcome))
    )
    def settle_what_came(self, one: Stranger, sub: int, number: int, outcome: Outcome) -> None:
        rows = [DispositionRow(*place, int(outcome)) for place in one.delivered[-3:]]
        self.run(self._say(one, Settle(sub, number, rows)))

    @rule(
        one=strangers, sub=st.integers(0, 2), topic=TOPICS, source=SOURCES, start=SEQS, more=st.integers(0, 9)
    )
    def settle_anything(
        self, one: Stranger, sub: int, topic: str, source: bytes, start: int, more: int
    ) -> None:
        row = DispositionRow(topic, source, max(1, start), max(1, start) + more, int(Outcome.ACCEPTED))
        self.run(self._say(one, Settle(sub, 1, [row]), Credit(sub, 1 << 40)))

    @rule(one=strangers, sub=st.integers(0, 2), source=SOURCES, total=SEQS, is_last=st.booleans())
    def stream(self, one: Stranger, sub: int, source: bytes, total: int, is_last: bool) -> None:
        begun = Begin(source, "jobs/x", True, bytes(Batch.build(source, "jobs/x", 1, [b""], 1, flags=2).data))
        self.run(self._say(one, begun, Piece(sub, source, 0, b"piece", is_last), Room(sub, source, total)))
        self.run(self._say(one, Abort(sub, source, "no")))

    @rule(one=strangers, topic=TOPICS, source=SOURCES, start=SEQS.filter(bool), is_on=st.booleans())
    def recover(self, one: Stranger, topic: str, source: bytes, start: int, is_on: bool) -> None:
        said = (Offer("evil/**", b"", is_on), Recover(1, topic, source, [(start, start + 5)], 1000))
        self.run(self._say(one, *said, Survey(2, "evil/**"), Heartbeat(topic, source, start)))

    @rule(one=strangers, sub=st.integers(0, 2), forget=st.booleans())
    def unsubscribe(self, one: Stranger, sub: int, forget: bool) -> None:
        self.run(self._say(one, Unsubscribe(sub, forget), Ping()))

    @rule(one=strangers, frame=encoded | damaged(encoded))
    def say_anything(self, one: Stranger, frame: bytes) -> None:
        self.run(self._say(one, frame))

    @rule(one=consumes(strangers), is_rude=st.booleans())
    def hang_up(self, one: Stranger, is_rude: bool) -> None:
        async def leave() -> None:
            if is_rude:
                one.writer.transport.abort()
            else:
                one.writer.close()
            await asyncio.sleep(0.01)

        self.run(leave())

    @rule(seconds=st.sampled_from([0.5, 5.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    # -- what must hold

    @invariant()
    def nobody_else_notices(self) -> None:
        assert not self.fabric.logged, self.fabric.logged
        assert not self.fabric.errors, self.fabric.errors
        assert self.got == [b"%d" % number for number in range(1, self.sent + 1)]

    def teardown(self) -> None:
        self.logs.__exit__(None, None, None)
        self.fabric.__exit__()


TestProtocol = ProtocolMachine.TestCase
TestProtocol.settings = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
