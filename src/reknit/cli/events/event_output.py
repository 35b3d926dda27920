"""Prints events as lines, one batch at a time."""

from __future__ import annotations

import base64
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, BinaryIO

import msgspec

from reknit.batch import Batch
from reknit.checkpoint import Checkpoint
from reknit.cli.output import plain, shown
from reknit.event import Event
from reknit.private_topics import public_topic

_json = msgspec.json.Encoder()


class Printer(ABC):
    """Writes batches, and remembers the checkpoint after the last one."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self.checkpoint: Checkpoint | None = None
        """Everything up to here is written. None until the subscription is confirmed."""

    def start_from(self, checkpoint: Checkpoint) -> None:
        """The subscription is confirmed, and starts after a checkpoint."""
        self.checkpoint = checkpoint

    def write(self, batch: Batch) -> None:
        """Write and flush every event of a batch."""
        self._out.write(b"".join(self.lines(batch)))
        self._out.flush()
        self.checkpoint = (self.checkpoint or Checkpoint()).advance(batch.source, batch.stop - 1)

    @abstractmethod
    def lines(self, batch: Batch) -> Iterable[bytes]:
        """The events as lines."""


class RawLines(Printer):
    """Payloads, one per line."""

    def lines(self, batch: Batch) -> Iterable[bytes]:
        return (payload + b"\n" for payload in batch.payloads())


class JsonLines(Printer):
    """One JSON object per line."""

    def lines(self, batch: Batch) -> Iterable[bytes]:
        return (_json.encode(as_json(event)) + b"\n" for event in batch.events())


class CloudEventLines(Printer):
    """One CloudEvent in JSON per line."""

    def lines(self, batch: Batch) -> Iterable[bytes]:
        from reknit.envelope.cloudevents import event_to_json

        for event in batch.events():
            line = event_to_json(event)
            yield (msgspec.json.format(line, indent=-1) if b"\n" in line else line) + b"\n"


def as_json(event: Event) -> dict[str, Any]:
    """An event as a JSON object. A payload that is not UTF-8 is in `payload_base64` instead of `payload`."""
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
    """Lines for people: time, topic, seq, payload."""

    def __init__(self, out: BinaryIO, is_terminal: bool) -> None:
        super().__init__(out)
        self._form = (
            "\x1b[2m{}\x1b[0m  \x1b[36m{}\x1b[0m  \x1b[2m{}\x1b[0m  {}\n"
            if is_terminal
            else "{}  {}  {}  {}\n"
        )

    def lines(self, batch: Batch) -> Iterable[bytes]:
        topic = plain(public_topic(batch.topic))
        for event in batch.events():
            yield self._form.format(clock(event.time_us), topic, event.seq, shown(event.payload)).encode()


def printer_for(*, is_json: bool, is_raw: bool, is_cloudevent: bool) -> Printer:
    """The printer to stdout for the options of `reknit sub`."""
    out = sys.stdout.buffer
    if is_json:
        return JsonLines(out)
    if is_raw:
        return RawLines(out)
    return CloudEventLines(out) if is_cloudevent else Lines(out, sys.stdout.isatty())


def iso(time_us: int) -> str:
    """The time in UTC, to the microsecond."""
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="microseconds")


def clock(time_us: int) -> str:
    """The local time of day, to the millisecond."""
    return datetime.fromtimestamp(time_us / 1e6).strftime("%H:%M:%S.%f")[:-3]
