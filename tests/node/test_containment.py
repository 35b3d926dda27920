"""An error inside costs the peer that it is about its connection, and nobody else anything."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reknit.errors import NotConnected, Refused
from reknit.node.core.failures import EffectPerformer, EffectsFailed
from reknit.node.node import Node
from tests.node.fabric import TOPIC, client, fabric, run, take, until


class Boom(Exception):
    """A mistake in the code."""


def reported() -> list[dict[str, Any]]:
    """What is reported to the event loop from now on."""
    found: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: found.append(context))
    return found


def fail(*args: object, **kwargs: object) -> None:
    raise Boom


def test_an_error_in_a_message_ends_its_peer_with_an_id_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with fabric() as [node], client(node) as good, client(node) as bad:
            errors = reported()
            async with good.subscribe(TOPIC) as events:
                monkeypatch.setattr(node.core, "order", fail)
                lost = asyncio.create_task(bad.ask("pause", pattern="a/**"))
                await asyncio.wait([lost])
                assert lost.exception() is not None
                [error] = errors
                assert isinstance(error["exception"], Boom)
                assert error["message"].startswith("internal error ")
                await good.publish(TOPIC, b"7")
                assert await take(events, 1) == [7]

    run(test)


def test_the_peer_is_told_the_id_that_the_log_has(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with fabric() as [node], client(node) as session:
            errors = reported()
            monkeypatch.setattr(node.core, "order", fail)
            with pytest.raises(NotConnected):
                await session.ask("pause", pattern="a/**")
            error = errors[0]
            assert f"internal error {error['message'].split()[2]}" in session.connection.goodbye_text

    run(test)


def test_effects_after_one_that_fails_are_performed() -> None:
    done: list[int] = []

    def perform(effect: int, now: float) -> None:
        if effect == 2:
            raise Boom
        done.append(effect)

    performer = EffectPerformer(perform)
    performer.perform([1, 2, 3], 0.0)
    assert done == [1, 3]
    with pytest.raises(EffectsFailed) as caught:
        performer.raise_failures()
    [(effect, error)] = caught.value.failures
    assert (effect, type(error)) == (2, Boom)
    performer.raise_failures()


def test_a_failed_delivery_ends_one_subscriber_and_the_others_get_the_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        async with (
            fabric() as [node],
            client(node) as good,
            client(node) as bad,
            good.subscribe(TOPIC) as events,
            bad.subscribe(TOPIC, name="audit") as owed,
        ):
            await until(lambda: len(node.core.dispatch.queues) == 2)
            errors = reported()
            break_once(node, "audit", monkeypatch)
            await good.publish(TOPIC, b"1")
            assert await take(events, 1) == [1]
            assert await take(owed, 1) == [1], "after it has reconnected"
            assert [type(error["exception"]) for error in errors] == [Boom]

    run(test)


def break_once(node: Node, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next delivery to a durable subscriber fails."""
    pump, broken = node.core.dispatch._pump, [name]
    grow_queue = pump._grow_queue

    def grow(queue: Any, *args: Any) -> None:
        if queue.name in broken:
            broken.remove(queue.name)
            raise Boom
        grow_queue(queue, *args)

    monkeypatch.setattr(pump, "_grow_queue", grow)


def test_a_watcher_that_fails_stops_neither_the_others_nor_reading() -> None:
    async def test() -> None:
        async with fabric() as [node], client(node) as session:
            errors, heard = reported(), list[int]()
            node.watchers += [fail, lambda: heard.append(1)]
            for number in range(3):
                await session.publish(TOPIC, str(number).encode())
            assert len(heard) >= 3
            assert len(errors) == len(heard)
            assert not node._paused
            node.watchers.clear()

    run(test)


def test_what_could_not_be_staged_is_never_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with fabric() as [node], client(node) as session:
            errors = reported()
            await session.publish(TOPIC, b"1")
            stage = node.journal.stage
            monkeypatch.setattr(node.journal, "stage", fail)
            waiting = asyncio.ensure_future(session.publish(TOPIC, b"2"))
            await until(lambda: errors)
            assert not waiting.done()
            monkeypatch.setattr(node.journal, "stage", stage)
            node.core.durable(0, node.journal.end, asyncio.get_running_loop().time())
            node.run_machines()
            await waiting
            assert sum(seqs.count for seqs in node.journal.ledger.published.values()) == 2

    run(test)


def test_a_request_that_fails_later_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with fabric() as [node], client(node) as session:
            reported()
            monkeypatch.setattr(node.journal.ledger, "walk", fail)
            with pytest.raises(Refused, match="log says"):
                await session.ledger()

    run(test)


def test_the_clock_goes_on_after_a_chore_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with fabric() as [node]:
            errors = reported()
            monkeypatch.setattr(node._housekeeping, "_chores", (fail,))
            await until(lambda: len(errors) >= 2)

    run(test)
