"""Events as lines, a batch at a time."""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, BinaryIO

import msgspec

from reknit.batch import Batch
from reknit.checkpoint import Checkpoint
from reknit.cli.output import plain, shown
from reknit.event import Event

_json = msgspec.json.Encoder()


class Printer(ABC):
    """Writes batches, and remembers how far it has got."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self.checkpoint: Checkpoint | None = None
        """Everything up to here is written; none before the subscription stands."""

    def write(self, batch: Batch) -> None:
        """Write every event of a batch; what was written reaches whoever reads it at once."""
        self._out.write(b"".join(self.lines(batch)))
        self._out.flush()
        self.checkpoint = (self.checkpoint or Checkpoint()).advance(batch.source, batch.stop - 1)

    @abstractmethod
    def lines(self, batch: Batch) -> Iterable[bytes]:
        """The events as lines."""


class RawLines(Printer):
    """Payloads, a line each."""

    def lines(self, batch: Batch) -> Iterable[bytes]:
        return (payload + b"\n" for payload in batch.payloads())


class JsonLines(Printer):
    """A JSON object a line."""

    def lines(self, batch: Batch) -> Iterable[bytes]:
        return (_json.encode(as_json(event)) + b"\n" for event in batch.events())


class CloudEventLines(Printer):
    """A CloudEvent in JSON a line."""

    def lines(self, batch: Batch) -> Iterable[bytes]:
        from reknit.envelope.cloudevents import event_to_json

        for event in batch.events():
            line = event_to_json(event)
            yield (msgspec.json.format(line, indent=-1) if b"\n" in line else line) + b"\n"


def as_json(event: Event) -> dict[str, Any]:
    """An event for machines. A payload that is not UTF-8 is in `payload_base64` instead."""
    row: dict[str, Any] = {
        "topic": event.topic,
        "source": event.source.hex(),
        "seq": event.seq,
        "time": iso(event.time_us),
    }
    try:
        row["payload"] = event.payload.decode()
    except UnicodeDecodeError:
        row["payload_base64"] = base64.b64encode(event.payload).decode()
    if headers := event.headers:
        row["headers"] = headers
    return row


class Lines(Printer):
    """For people: time, topic, seq, payload."""

    def __init__(self, out: BinaryIO, is_terminal: bool) -> None:
        super().__init__(out)
        self._form = (
            "\x1b[2m{}\x1b[0m  \x1b[36m{}\x1b[0m  \x1b[2m{}\x1b[0m  {}\n"
            if is_terminal
            else "{}  {}  {}  {}\n"
        )

    def lines(self, batch: Batch) -> Iterable[bytes]:
        topic = plain(batch.topic)
        for event in batch.events():
            yield self._form.format(clock(event.time_us), topic, event.seq, shown(event.payload)).encode()


def iso(time_us: int) -> str:
    """The time in UTC, to the microsecond."""
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="microseconds")


def clock(time_us: int) -> str:
    """The time of day here, to the millisecond."""
    return datetime.fromtimestamp(time_us / 1e6).strftime("%H:%M:%S.%f")[:-3]
