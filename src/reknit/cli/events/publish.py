"""Publishes the payloads that `reknit pub` reads, and counts how many of them are stored."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator

import typer

from reknit.cli.output import events, print_json, say
from reknit.cli.running import connected, run
from reknit.client.options import PublisherOptions
from reknit.client.publish.event_fields import EventFields
from reknit.client.publish.scheduling import SchedulePublisher
from reknit.envelope.cloudevents import from_json
from reknit.topic import schedule_topic


class PublishedCount:
    """How many events were sent, and how many of them are known to be stored."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.sent = self.stored = 0

    def __str__(self) -> str:
        return f"{events(self.stored)} stored on {self.topic}"


class PublishProgress:
    """A line on the terminal that counts stored events. Prints nothing if stderr is not a terminal."""

    INTERVAL_S = 0.5

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._started = self._next = time.monotonic() + self.INTERVAL_S
        self._has_written = False

    def __enter__(self) -> PublishProgress:
        return self

    def show(self, count: int) -> None:
        """Show the number of events that are stored so far."""
        now = time.monotonic()
        if not self._is_shown or now < self._next:
            return
        self._next = now + self.INTERVAL_S
        self._has_written = True
        rate = count / (now - self._started + self.INTERVAL_S)
        sys.stderr.write(f"\r{events(count)} stored, {rate:,.0f} per second \x1b[K")
        sys.stderr.flush()

    def __exit__(self, *args: object) -> None:
        if self._has_written:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def publish(
    source: AsyncIterator[list[bytes]],
    *,
    topic: str | None,
    node: str,
    name: str,
    ttl_ms: int,
    priority: int,
    fields: EventFields,
    as_json: bool = False,
) -> None:
    """Publish payloads on a topic, or as CloudEvents if there is none, and print how many are stored."""
    count = PublishedCount(topic or "their topics")
    try:
        if topic is None:
            run(_publish_cloudevents(node, name, source, count))
        else:
            options = PublisherOptions(ttl_ms=ttl_ms, priority=priority)
            run(_publish_payloads(node, name, topic, options, fields, source, count))
    except typer.Exit:
        rest = count.sent - count.stored
        say(f"interrupted: {count}" + (f"; {events(rest)} more may be stored" if rest else ""))
        raise
    if as_json:
        print_json({"topic": topic, "stored": count.stored})
    else:
        typer.echo(count)


async def _publish_payloads(
    node: str,
    name: str,
    topic: str,
    options: PublisherOptions,
    fields: EventFields,
    source: AsyncIterator[list[bytes]],
    count: PublishedCount,
) -> None:
    async with connected(node, name) as session:
        at_us = fields.at_us
        publisher = session.make_publisher(topic if at_us is None else schedule_topic(topic), options)
        try:
            with PublishProgress() as progress:
                async for payloads in source:
                    if isinstance(publisher, SchedulePublisher) and at_us is not None:
                        for payload in payloads:
                            count.sent += 1
                            later = publisher.schedule(
                                payload, at_us / 1e6, None, key=fields.key, headers=fields.headers
                            )
                        await later
                        progress.show(count.sent - publisher.unkept)
                        continue
                    for payload in payloads:
                        count.sent += 1
                        await publisher.send(payload, key=fields.key, headers=fields.headers)
                    progress.show(count.sent - publisher.unkept)
        finally:
            try:
                await publisher.flush()
            finally:
                count.stored = count.sent - publisher.unkept


async def _publish_cloudevents(
    node: str, name: str, source: AsyncIterator[list[bytes]], count: PublishedCount
) -> None:
    """Publish CloudEvents. Raises at the first payload that is not one; the events before it are stored."""
    async with connected(node, name) as session:
        async for payloads in source:
            stored = []
            try:
                for payload in payloads:
                    stored.append(session.publish_event(*from_json(payload)))
                    count.sent += 1
            finally:
                await asyncio.gather(*stored)
                count.stored = count.sent
