"""The loops of the publishing application, the same for all subjects: for blocking clients and for asyncio clients."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable

from bench.events import Feed
from bench.job import PACED_EVENTS_PER_S, Job, Mode
from bench.peers.base import AsyncPublisher, Publisher
from bench.speech import LEAVE_AFTER_S, Clock, is_told, say

PROBE_EVERY_S = 0.02
PACE_S = 0.001


def publish(job: Job, publisher: Publisher) -> None:
    feed = Feed(job.lane, job.load.size, job.seconds, job.load.count)
    say("ready")
    while not is_told(PROBE_EVERY_S):
        send_probe(job, feed, publisher)
        publisher.flush()
    sys.stdin.readline()
    clock = Clock()
    send_all(job, feed, publisher)
    publisher.flush()
    clock.done(feed.sent)
    is_told(LEAVE_AFTER_S)
    publisher.close()


def send_probe(job: Job, feed: Feed, publisher: Publisher) -> None:
    if job.load.mode is Mode.BATCH:
        publisher.send_batch([feed.probe()])
    else:
        publisher.send(feed.probe())


def send_all(job: Job, feed: Feed, publisher: Publisher) -> None:
    match job.load.mode:
        case Mode.SINGLE:
            send = publisher.send
            for event in feed.events():
                send(event)
        case Mode.BATCH:
            for events in feed.batches(job.per_batch):
                publisher.send_batch(events)
        case Mode.PACED:
            for words in feed.due(PACED_EVENTS_PER_S):
                for word in words:
                    publisher.send(feed.timed(word))
                    publisher.flush()
                time.sleep(PACE_S)


async def publish_async(job: Job, opening: Awaitable[AsyncPublisher]) -> None:
    publisher = await opening
    feed = Feed(job.lane, job.load.size, job.seconds, job.load.count)
    say("ready")
    while not is_told(0):
        await send_probe_async(job, feed, publisher)
        await publisher.flush()
        await asyncio.sleep(PROBE_EVERY_S)
    sys.stdin.readline()
    clock = Clock()
    await send_all_async(job, feed, publisher)
    await publisher.flush()
    clock.done(feed.sent)
    await asyncio.to_thread(is_told, LEAVE_AFTER_S)
    await publisher.close()


async def send_probe_async(job: Job, feed: Feed, publisher: AsyncPublisher) -> None:
    if job.load.mode is Mode.BATCH:
        await publisher.send_batch([feed.probe()])
    else:
        await publisher.send(feed.probe())


async def send_all_async(job: Job, feed: Feed, publisher: AsyncPublisher) -> None:
    match job.load.mode:
        case Mode.SINGLE:
            send = publisher.send
            for event in feed.events():
                await send(event)
        case Mode.BATCH:
            for events in feed.batches(job.per_batch):
                await publisher.send_batch(events)
        case Mode.PACED:
            for words in feed.due(PACED_EVENTS_PER_S):
                for word in words:
                    await publisher.send(feed.timed(word))
                await asyncio.sleep(PACE_S)
