"""What a sample has beside its payload is an event's, and back."""

from __future__ import annotations

import asyncio
import base64
import itertools
import logging
from dataclasses import replace
from typing import Any

import pytest

zenoh = pytest.importorskip("zenoh")

from reknit.batch import Batch  # noqa: E402
from reknit.config import LimitSettings  # noqa: E402
from reknit.gateway.zenoh.entities import zid_of  # noqa: E402
from reknit.gateway.zenoh.threads import call  # noqa: E402
from reknit.processes.process import free_port  # noqa: E402
from reknit.server import build_node  # noqa: E402
from tests.gateway.zenoh.network import BLOCK, KEY, Peer, joined  # noqa: E402
from tests.node.fabric import SOURCE, client, config, fed, made, run, take, until  # noqa: E402

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

NONE = zenoh.ConsolidationMode.NONE


def test_what_a_sample_has_is_in_the_event() -> None:
    async def test() -> None:
        async with joined() as (node, session, peer), session.subscribe(KEY, history=True) as events:
            await peer.reaches(node)
            options: dict[str, Any] = {
                "encoding": "application/json",
                "priority": zenoh.Priority.INTERACTIVE_HIGH,
                "congestion_control": BLOCK,
                "express": True,
                "attachment": b"\0a",
                "timestamp": zenoh.Timestamp(zenoh.NTP64(1_700_000_000, 5_000), b"me"),
            }
            await call(peer.session.put, KEY, b"{}", **options)
            event = await anext(events)
            assert event.headers == {
                "zenoh-encoding": "application/json",
                "zenoh-congestion-control": "block",
                "zenoh-express": "true",
                "zenoh-attachment": base64.b64encode(b"\0a").decode(),
            }
            assert (event.time_us, event.batch.head.priority) == (1_700_000_000_000_005, 5)
            await call(peer.session.delete, KEY, congestion_control=BLOCK)
            event = await anext(events)
            assert event.headers["zenoh-kind"] == "delete"

    run(test)


def test_what_an_event_has_is_in_the_sample() -> None:
    async def test() -> None:
        async with joined() as (node, session, peer):
            samples: list[Any] = []
            await peer.subscriber(KEY, samples.append)
            await peer.is_reached_by(session)
            attachment = base64.b64encode(b"\0a").decode()
            headers = {"zenoh-encoding": "application/json", "zenoh-attachment": attachment}
            columns = {"headers": [headers, {"zenoh-kind": "delete", "why": "old"}]}
            await fed(node, Batch.build(SOURCE, KEY, 1, [b"{}", b""], 1_700_000_000_000_000, columns=columns))
            await until(lambda: len(samples) == 2)
            first, second = samples
            assert str(first.encoding) == "application/json"
            assert first.attachment.to_bytes() == b"\0a"
            assert first.priority == zenoh.Priority.DATA_LOW, "CS1, as uProtocol maps it"
            assert first.congestion_control == BLOCK
            assert second.kind == zenoh.SampleKind.DELETE
            assert zenoh.ext.z_deserialize(dict[str, str], second.attachment) == {"why": "old"}
            assert first.timestamp.get_time_as_ntp64() < second.timestamp.get_time_as_ntp64()

    run(test)


def test_a_sample_that_is_too_long_is_told_once_and_not_taken(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        endpoint = f"tcp/127.0.0.1:{free_port()}"
        limits = LimitSettings(payload_bytes_max=1_000)
        async with (
            build_node(replace(config(zenoh_listen=(endpoint,)), limits=limits)) as node,
            client(node) as session,
            Peer([], [endpoint]) as peer,
            session.subscribe(KEY, history=True) as events,
        ):
            publisher = await peer.publisher()
            await peer.reaches(node)
            for payload in (b"1", bytes(1_001), bytes(1_001), b"2"):
                await call(publisher.put, payload)
            assert await take(events, 2) == [1, 2]

    with caplog.at_level(logging.WARNING, "reknit.zenoh"):
        run(test)
    told = [record for record in caplog.records if "payload_bytes_max" in record.getMessage()]
    assert len(told) == 1


def test_a_query_for_topics_is_answered_from_the_journal() -> None:
    async def test() -> None:
        async with joined() as (_, session, peer):
            await session.publish_many("plant/a", [b"1", b"2", b"3"])
            await session.publish_many("plant/b", [b"4"])
            await peer.is_reached_by(session)

            async def asked(selector: str) -> list[tuple[str, bytes]]:
                def ask() -> list[Any]:
                    return [reply.ok for reply in peer.session.get(selector, consolidation=NONE)]

                found = await call(ask)
                return [(str(sample.key_expr), sample.payload.to_bytes()) for sample in found]

            newest = [("plant/a", b"3"), ("plant/b", b"4")]
            assert sorted(await asked("plant/*")) == newest
            assert await asked("plant/a?_max=2") == [("plant/a", b"2"), ("plant/a", b"3")]
            assert await asked("plant/a?_sn=0..1") == [("plant/a", b"1"), ("plant/a", b"2")]
            assert sorted(await asked("plant/*?_time=[now(-1h)..];_max=1")) == newest
            assert await asked("plant/c") == []

    run(test)


def test_a_source_keeps_its_identity_in_zenoh_over_restarts() -> None:
    async def test() -> None:
        endpoint = f"tcp/127.0.0.1:{free_port()}"
        infos: list[Any] = []
        async with Peer([endpoint], []) as peer:
            await peer.subscriber(KEY, lambda sample: infos.append(sample.source_info))
            for _ in range(2):
                before = len(infos)
                async with build_node(config(zenoh_connect=(endpoint,))) as node:
                    numbers = itertools.count(1)
                    while len(infos) == before:  # until the peer is there
                        number = next(numbers)
                        await fed(node, made(number, number + 1))
                        await asyncio.sleep(0.02)
        assert {(str(info.source_id.zid), info.source_id.eid) for info in infos} == {(zid_of(SOURCE), 1)}

    run(test)
