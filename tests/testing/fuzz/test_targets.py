"""Every target makes the same inputs from the same numbers, and finds a fault that is planted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import pytest

from reknit.errors import MalformedFrame, Refused
from reknit.frame import KIND_MESSAGE
from reknit.node.admin.admin_requests import ORDERS
from reknit.testing.fuzz.__main__ import main
from reknit.testing.fuzz.capture import http_conversations, split_frames, tcp_conversations
from reknit.testing.fuzz.findings import signature
from reknit.testing.fuzz.inputs import SAY
from reknit.testing.fuzz.local_campaign import small, tried
from reknit.testing.fuzz.targets.admin import KNOWN, AdminTarget
from reknit.testing.fuzz.targets.all import LOCAL, NAMES, local_target, port_target
from reknit.testing.fuzz.targets.target import Target
from reknit.testing.fuzz.targets.tunnel import TunnelTarget
from reknit.wire import messages, recovery, streams
from reknit.wire.codec import decode
from tests.node.fabric import client, fabric, run

PAGES = (b"GET /kn", b"POST /kn", b"GET /sse", b"GET /ws", b"POST /cloudevents")


@contextmanager
def target_of(name: str) -> Iterator[Target]:
    if name in LOCAL:
        with local_target(name) as target:
            yield target
        return
    found = port_target(name)
    if found is None:
        pytest.skip("python-qpid-proton could not be built on this machine")
    yield found


@pytest.mark.parametrize("name", NAMES)
def test_the_same_numbers_make_the_same_input(name: str) -> None:
    with target_of(name) as first, target_of(name) as second:
        for number in range(5):
            assert first.input(3, number) == second.input(3, number)
        assert len({first.input(3, number).steps for number in range(20)}) > 15


def test_captured_conversations_have_the_messages_of_clients() -> None:
    frames = [part for one in tcp_conversations() for part in one.parts]
    kinds = {type(decode(frame)) for frame in frames if frame[2] == KIND_MESSAGE}
    wanted = {messages.Hello, messages.Subscribe, messages.Settle, messages.Ask, recovery.Recover}
    assert wanted | set(get_args(streams.StreamMessage)) <= kinds


def test_captured_conversations_have_every_page_of_the_gateway() -> None:
    said = b"".join(part for one in http_conversations() for part in one.parts)
    assert all(page in said for page in PAGES)


# -- a fault that is planted


def plant(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tunnel whose client can't stand a `-`."""
    original: Callable[[TunnelTarget, Any], str] = TunnelTarget.problem

    def problem(self: TunnelTarget, steps: Any) -> str:
        if any(b"-" in step.data for step in steps):
            raise ZeroDivisionError("a hyphen")
        return original(self, steps)

    monkeypatch.setattr(TunnelTarget, "problem", problem)


def test_a_planted_fault_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with local_target("tunnel") as target:
        found = next(one for one in (target.input(1, n) for n in range(100)) if tried(target, one))
        what = signature(tried(target, found))
        assert what.startswith("ZeroDivisionError in ")
        less = small(found, what)
    assert len(less.steps) == 1
    assert len(less.steps[0].data) <= 16


def test_a_finding_can_be_replayed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(monkeypatch)
    target = local_target("tunnel")
    bad = next(one for one in (target.input(1, n) for n in range(100)) if tried(target, one))
    path = bad.save(tmp_path)
    assert main(["--replay", str(path)]) == 1
    assert "a hyphen" in capsys.readouterr().out
    monkeypatch.undo()
    assert main(["--replay", str(path)]) == 0


def test_every_admin_request_is_fuzzed() -> None:
    async def test() -> None:
        async with fabric() as [node], client(node) as session:
            with pytest.raises(Refused) as refused:
                await session.ask("weather")
            known = refused.value.text.partition("send one of ")[2].split(", ")
            assert known
            assert {*known, *ORDERS} - set(KNOWN) == set()

    run(test)


def test_admin_requests_are_understood_by_the_node() -> None:
    target = AdminTarget()
    inputs = (target.input(1, number) for number in range(30))
    said = [b"".join(step.data for step in one.steps if step.do == SAY) for one in inputs]
    frames = [one for data in said for one in split_frames(data)]
    understood = [one for one in frames if _is_message(one)]
    assert len(understood) > len(frames) / 2


def _is_message(frame: bytes) -> bool:
    try:
        decode(frame)
    except MalformedFrame:
        return False
    return True
