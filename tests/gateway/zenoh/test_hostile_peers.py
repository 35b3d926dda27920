"""Peers of a Zenoh network that say what they should not, and events that Zenoh has no room for: they stop nobody."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Iterator
from typing import Any

import pytest

zenoh = pytest.importorskip("zenoh")

from reknit.batch import Batch  # noqa: E402
from reknit.environment import Environment  # noqa: E402
from reknit.frame import FRAME_BYTES_MAX  # noqa: E402
from reknit.gateway.zenoh import neighbours, sample_queue  # noqa: E402
from reknit.gateway.zenoh.admission import SampleAdmission  # noqa: E402
from reknit.gateway.zenoh.attributes import unpack_headers  # noqa: E402
from reknit.gateway.zenoh.entities import EntityIds  # noqa: E402
from reknit.gateway.zenoh.keys import selected, wanted  # noqa: E402
from reknit.gateway.zenoh.neighbours import ZenohNeighbours  # noqa: E402
from reknit.gateway.zenoh.notices import Notices  # noqa: E402
from reknit.gateway.zenoh.publishers import ZenohPublishers  # noqa: E402
from reknit.gateway.zenoh.sample_queue import HOLD_S_MAX, SampleQueue, Taken  # noqa: E402
from reknit.gateway.zenoh.samples import Origin, SampleNumbering, ZenohSample  # noqa: E402
from reknit.gateway.zenoh.threads import ZenohPanicked, call  # noqa: E402
from tests.gateway.zenoh.network import KEY, gateway, joined  # noqa: E402
from tests.node.fabric import SOURCE, fed, run, take, until  # noqa: E402

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

ANY: Any = None
LONG = "9" * 5_000
"""Python refuses to read a number with so many digits."""


@pytest.fixture(autouse=True)
def no_internal_error(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    errors = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert not errors, [f"{one.getMessage()} {one.exc_text or ''}" for one in errors]


@pytest.mark.parametrize(
    "parameters",
    [f"_sn={LONG}", f"_sn=0..{LONG}", "_sn=x", f"_max={LONG}", "_max=x", "_time=[now(-1.2.3s)..]"],
)
def test_numbers_that_are_none_ask_for_nothing(parameters: str) -> None:
    assert wanted("plant/*/@adv/**", parameters) is None
    assert selected(parameters) is None


def test_an_age_that_is_longer_than_time_is_long() -> None:
    asked = wanted("plant/*/@adv/**", f"_time=[now(-{'9' * 400}d)..]")
    assert asked is not None
    assert asked.age_s == 1e9


def test_odd_keys_and_queries_stop_nobody() -> None:
    async def test() -> None:
        async with joined() as (node, session, peer):
            await session.publish(KEY, b"1")
            for entity in (LONG, "²", "-1", "x"):
                await call(peer.session.put, f"{KEY}/@adv/pub/c0ffee/{entity}/_", b"\0\0\0\0")
                await peer.declare(
                    peer.session.liveliness().declare_token, f"{KEY}/@adv/pub/c0ffee/{entity}/_"
                )
            for selector in (
                f"{KEY}?_sn={LONG}",
                f"{KEY}/@adv/**?_sn={LONG}",
                f"**?_time=[now(-{'9' * 400}d)..]",
            ):
                await call(lambda one: list(peer.session.get(one)), selector)
            await peer.reaches(node)
            told = (
                f"{KEY}/@adv/pub/c0ffee/7/_"  # who hears heartbeats, and who looks for publishers, still do
            )
            await peer.declare(peer.session.liveliness().declare_token, told)
            await until(lambda: any(one.eid == 7 for _, one in gateway(node)._numbering.origins.values()))
            await call(peer.session.put, f"{KEY}/@adv/pub/c0ffee/8/_", b"\0\0\0\0")
            await until(lambda: any(one.eid == 8 for _, one in gateway(node)._numbering.origins.values()))

    run(test)


def test_a_sample_from_the_future_comes_with_the_time_of_its_arrival(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    admission = SampleAdmission(
        ANY, ANY, Notices(), payload_bytes_max=1_000, topic_bytes_max=1_000, future_s_max=600.0
    )
    samples = [ZenohSample(KEY, b"", time_us) for time_us in (7, 600_000_000, 4_000_000_000_000_000)]
    taken = clock.run(admission.fitting, samples)
    assert [one.time_us for one in taken] == [7, 600_000_000, 0]
    assert "limits.future_s_max" in caplog.text


def test_events_that_zenoh_has_no_room_for_reach_it_without_that() -> None:
    async def test() -> None:
        async with joined() as (node, session, peer):
            samples: list[Any] = []
            await peer.subscriber(KEY, samples.append)
            await peer.is_reached_by(session)
            columns: dict[str, list[Any]] = {
                "headers": [{"zenoh-encoding": "é" * 200}, None],
                "time": [1, 250_000_000_000_000_000],
            }
            await fed(node, Batch.build(SOURCE, KEY, 1, [b"1", b"2"], 1, columns=columns))
            await until(lambda: len(samples) == 2)
            kept = zenoh.ext.z_deserialize(dict[str, str], samples[0].attachment)
            assert (str(samples[0].encoding), kept) == ("zenoh/bytes", {"zenoh-encoding": "é" * 200})
            assert samples[1].timestamp is None or samples[1].timestamp.get_time().year < 2106

    run(test)


def test_an_event_that_can_not_be_put_becomes_a_dead_letter(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put = ZenohPublishers.put

    def refuses(self: ZenohPublishers, batches: list[Batch]) -> None:
        if any(batch.payloads()[0] == b"bad" for batch in batches):
            raise ZenohPanicked("Zenoh panicked: DidntWrite")
        put(self, batches)

    monkeypatch.setattr(ZenohPublishers, "put", refuses)

    async def test() -> None:
        async with joined() as (node, session, peer):
            samples: list[bytes] = []
            await peer.subscriber("plant/*", lambda sample: samples.append(sample.payload.to_bytes()))
            await peer.is_reached_by(session)
            for topic, payload in (("plant/a", b"1"), ("plant/b", b"bad"), ("plant/c", b"2")):
                await session.publish(topic, payload)
            await until(lambda: {b"1", b"2"} <= set(samples))
            await until(lambda: node.core.dead_letters.waiting.count == 1)

    run(test)
    assert "events 1 to 1 on 'plant/b' can't be put into Zenoh" in caplog.text
    caplog.clear()


def test_a_number_that_jumps_by_billions_is_one_loss() -> None:
    async def test() -> None:
        async with joined(patience_s=0.1) as (node, session, peer), session.subscribe(KEY) as events:
            await peer.reaches(node)
            publisher = EntityIds().of(bytes([7]) + bytes(15))
            for number, payload in ((0, b"1"), (1 << 31, b"2"), ((1 << 31) + 1, b"3")):
                await call(peer.session.put, KEY, payload, source_info=zenoh.SourceInfo(publisher, number))
            assert await take(events, 3) == [1, 2, 3]
            assert gateway(node).lost == (1 << 31) - 1

    run(test)


def test_long_headers_count_as_a_part_of_a_batch() -> None:
    headers = {"zenoh-attachment": "x" * (6 << 20)}
    samples = [ZenohSample(KEY, b"", 1, Origin("c0ffee", 7), sn, headers) for sn in range(4)]
    batches = SampleNumbering("edge").batches(samples)
    assert sum(batch.count for batch in batches) == 4
    assert all(batch.head.length < FRAME_BYTES_MAX for batch in batches)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"\x01\x01a",
        b"\x01\x01\xff\x00",
        b"\x00x",
        b"\xff" * 20,
        b"\x01" + b"\xff" * 4 + b"\x7f",
    ],
)
def test_attachments_that_are_no_maps_are_left_as_they_are(data: bytes) -> None:
    """Zenoh's own reader asked for as much memory as the last one says, and the node ended."""
    headers = {"zenoh-attachment": base64.b64encode(data).decode()}
    assert unpack_headers(headers) == headers


@pytest.mark.parametrize("headers", [{}, {"a": "b"}, {"é": "x" * 70_000, "": ""}])
def test_headers_are_read_as_zenoh_writes_them(headers: dict[str, str]) -> None:
    packed = zenoh.ext.z_serialize(headers).to_bytes()
    assert unpack_headers({"zenoh-attachment": base64.b64encode(packed).decode()}) == headers


def test_tokens_of_gateways_are_remembered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Token:
        kind = zenoh.SampleKind.PUT

        def __init__(self, name: str) -> None:
            self.key_expr = f"@reknit/gateway/{name.encode().hex()}"

    monkeypatch.setattr(neighbours, "GATEWAYS_MAX", 3)
    known = ZenohNeighbours("edge", None)  # type: ignore[arg-type]
    for number in range(9):
        known.on_token(Token(f"node {number}"))  # type: ignore[arg-type]
    assert len(known.present) == 3


# -- samples of a key are held while its history is fetched


class Clock(Environment):
    """A clock that is set."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time_us(self) -> int:
        return int(self.now * 1e6)


def sample(sn: int) -> ZenohSample:
    return ZenohSample(KEY, bytes(10), 1, Origin("c0ffee", 7), sn)


def numbers(taken: list[Taken]) -> list[int]:
    return [one.sn for one in taken]


def test_publishers_that_never_answer_hold_samples_for_a_limited_time() -> None:
    clock = Clock()

    async def test() -> None:
        queue = SampleQueue()
        queue.begin_history(KEY)
        queue.put(sample(2))
        clock.now = HOLD_S_MAX / 2
        queue.begin_history(KEY)  # another one comes, and does not answer either
        queue.put(sample(3))
        clock.now = HOLD_S_MAX
        queue.put(sample(4))
        assert numbers(await queue.take()) == [2, 3, 4]
        queue.end_history(KEY, [sample(1)])
        assert numbers(await queue.take()) == [1], "what comes late is taken, too"
        queue.end_history(KEY, [])
        queue.put(sample(5))
        assert numbers(await queue.take()) == [5]

    clock.run(asyncio.run, test())


def test_a_history_that_comes_in_time_precedes_what_was_held() -> None:
    async def test() -> None:
        queue = SampleQueue()
        for _ in range(2):
            queue.begin_history(KEY)
        queue.put(sample(3))
        queue.end_history(KEY, [sample(1)])
        queue.put(sample(4))
        queue.end_history(KEY, [sample(2)])
        assert numbers(await queue.take()) == [1, 2, 3, 4]

    asyncio.run(test())


@pytest.mark.parametrize(("limit", "value"), [("PENDING_MAX", 3), ("PENDING_BYTES_MAX", 30)])
def test_held_samples_are_limited(limit: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_queue, limit, value)

    async def test() -> None:
        queue = SampleQueue()
        queue.begin_history(KEY)
        for sn in range(3):
            queue.put(sample(sn))
        queue.put(sample(3))
        assert numbers(await queue.take()) == [0, 1, 2, 3]

    asyncio.run(test())
