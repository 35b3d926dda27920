"""Tunnel formats: what an HTTP server answers to a tunnel's client, and the texts and envelopes that events come in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import cached_property
from random import Random
from typing import Any, Final

import msgspec

from reknit.address import Address
from reknit.checkpoint import Checkpoint
from reknit.client.http_request import read_body, read_head
from reknit.envelope.attributes import Attributes
from reknit.envelope.cloudevents import from_json, to_json
from reknit.errors import InvalidAddress, InvalidAttributes, InvalidCheckpoint, InvalidTopic, MalformedFrame
from reknit.gateway.http.kn.parameters import age_of, count_of
from reknit.gateway.http.requests import parse_form
from reknit.protocol.tunnel.client import TunnelClient
from reknit.protocol.tunnel.client_messages import (
    BytesHeard,
    ConnectionLost,
    ElementsReceived,
    StartTunnel,
    StatusReceived,
)
from reknit.protocol.tunnel.journal_place import JournalPlace
from reknit.protocol.tunnel.simple_format import SimpleDecoder
from reknit.testing.fabric.programs.attacks import mutate_bytes
from reknit.testing.fuzz.capture import http_conversations
from reknit.testing.fuzz.inputs import SAY, Step
from reknit.testing.fuzz.mutations import cut, mutate_order, mutate_text, mutate_value
from reknit.testing.fuzz.targets.http import EVENT
from reknit.testing.fuzz.targets.target import LocalTarget
from reknit.topic import Pattern, check_topic

BYTES_MAX: Final = 20_000
"""How much of an answer is used."""
ROUNDS_MAX: Final = 20
"""A client that connects again more often within one input does not wait between its attempts."""
TEXTS: Final = (
    "0-1-2",
    "a1-4096-2",
    "//evil/1000/1/8001",
    "up://e/1/2/3",
    "plant/*",
    "**",
    "do_max_age=1e3;do_max_n=3",
)
LINES: Final = (
    b"-1",
    b"0",
    b"99999999999999",
    b"ffffffff",
    b"",
    b"\xb2",
    b"x: y",
    b"7;x",
    b"+5\r",
    b"HTTP/1.1 \xb2 x",
)

Read = Callable[[bytes], object]


def _umessage(data: bytes) -> object:
    from reknit.envelope.umessage import from_umessage

    return _same(from_umessage(data))


def _same(found: tuple[Attributes, bytes]) -> object:
    """What is decoded can be encoded again."""
    return to_json(*found)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _checkpoint(data: bytes) -> object:
    found = Checkpoint.from_text(_text(data))
    assert Checkpoint.from_text(found.to_text()) == found, "a checkpoint is read as it was written"
    return found


def _form(data: bytes) -> object:
    form = parse_form(data)
    return age_of(form), count_of(form)


READERS: Final[dict[str, tuple[Read, tuple[type[Exception], ...]]]] = {
    "place": (lambda data: JournalPlace.parse(_text(data)), (InvalidCheckpoint,)),
    "checkpoint": (_checkpoint, (InvalidCheckpoint,)),
    "address": (lambda data: Address.parse(_text(data)).pattern, (InvalidAddress, InvalidTopic)),
    "topic": (lambda data: check_topic(_text(data)), (InvalidTopic,)),
    "pattern": (lambda data: Pattern(_text(data)), (InvalidTopic,)),
    "form": (_form, (ValueError,)),
    "cloudevent": (lambda data: _same(from_json(data)), (InvalidAttributes,)),
    "umessage": (_umessage, (InvalidAttributes,)),
}
"""By kind of text or envelope: how it is read, and how it may fail."""


class TunnelTarget(LocalTarget):
    """A server that answers nonsense, and texts that are none."""

    name = "tunnel"

    @cached_property
    def answers(self) -> list[bytes]:
        """What a node answered, beginning with the status line."""
        found = [b"".join(one.heard)[:BYTES_MAX] for one in http_conversations() if one.heard]
        return [one for one in found if b"kn_" in one or b"chunked" in one] or found

    @cached_property
    def samples(self) -> dict[str, list[bytes]]:
        """Valid texts and envelopes, by kind."""
        sources = {bytes([number]) * 16: 7 * number for number in range(1, 4)}
        texts = [text.encode() for text in TEXTS]
        samples = dict.fromkeys(READERS, texts)
        samples["checkpoint"] = [Checkpoint(sources).to_text().encode(), b""]
        samples["cloudevent"] = [msgspec.json.encode(EVENT)]
        try:
            from reknit.envelope.umessage import to_umessage

            samples["umessage"] = [to_umessage(*from_json(msgspec.json.encode(EVENT)))]
        except ImportError:
            samples.pop("umessage")
        return samples

    def make(self, rng: Random) -> tuple[Step, ...]:
        if rng.random() < 0.4:
            return (self._text(rng),)
        parts = [rng.choice(self.answers) for _ in range(rng.randint(1, 3))]
        parts = mutate_order(rng, parts, self.answers, _mutate_answer)
        return tuple(Step(SAY, piece) for part in parts if part for piece in cut(rng, part))

    def _text(self, rng: Random) -> Step:
        kind = rng.choice(list(self.samples))
        data = rng.choice(self.samples[kind])
        if kind == "cloudevent" and rng.random() < 0.9:
            try:
                return Step(kind, msgspec.json.encode(mutate_value(rng, dict(EVENT))))
            except (ValueError, TypeError):
                return Step(kind, b"{")
        if kind == "umessage" or rng.random() < 0.3:
            return Step(kind, mutate_bytes(rng, data or b"x"))
        return Step(
            kind, mutate_text(rng, mutate_text(rng, data.decode("latin-1"))).encode("utf-8", "replace")
        )

    def problem(self, steps: tuple[Step, ...]) -> str:
        said = [step.data for step in steps if step.do == SAY]
        for step in steps:
            if step.do in READERS:
                read, expected = READERS[step.do]
                with contextlib.suppress(*expected):
                    read(step.data)
        return asyncio.run(_tunnel(said)) if said else ""


def _mutate_answer(rng: Random, answer: bytes) -> bytes:
    """Other headers, sizes or elements, or other bytes."""
    head, gap, body = answer.partition(b"\r\n\r\n")
    if rng.random() < 0.1:
        return mutate_bytes(rng, answer)
    if rng.random() < 0.3:
        return b"\r\n".join(_mutate_lines(rng, head.split(b"\r\n"))) + gap + body
    return head + gap + b"\n".join(_mutate_lines(rng, body.split(b"\n")))


def _mutate_lines(rng: Random, lines: list[bytes]) -> list[bytes]:
    at = rng.randrange(len(lines))
    match rng.randrange(6):
        case 0 | 1:
            lines[at] = rng.choice(LINES)
        case 2:
            del lines[at]
        case 3:
            lines.insert(at, rng.choice(lines))
        case 4:
            lines[at] = lines[at] * rng.choice((2, 1000))
        case _:
            lines[at] = mutate_bytes(rng, lines[at] or b"x")
    return lines


async def _tunnel(said: list[bytes]) -> str:
    """A tunnel's client that is answered with these bytes, on one connection after the other."""
    client, now, rounds = TunnelClient(Random(1)), 0.0, 0
    client.receive(StartTunnel(), "app", now)
    while rounds < ROUNDS_MAX:
        rounds += 1
        client.take_effects()
        try:
            await _attempt(client, said, now)
            why = "the connection ended"
        except (OSError, MalformedFrame) as error:
            why = str(error)
        client.receive(ConnectionLost(why), "server", now)
        due = client.next_deadline()
        if due is None:
            return ""
        if due < now:
            return f"a client that was cut off is due in the past\nat {due}, before {now}"
        now = due
        client.tick(now)
    return ""


async def _attempt(client: TunnelClient, said: list[bytes], now: float) -> None:
    reader = asyncio.StreamReader()
    for data in said:
        reader.feed_data(data)
    reader.feed_eof()
    _, headers = await read_head(reader)
    decoder, is_open = SimpleDecoder(), False
    async for data in read_body(reader, headers):
        client.receive(BytesHeard(), "server", now)
        for elements in decoder.feed(data):
            message: Any = ElementsReceived(elements) if is_open else StatusReceived(elements)
            is_open = True
            client.receive(message, "server", now)
