"""One process of a run: a publisher or a subscriber. `python -m bench.worker <job as JSON>`

It reports to the harness with JSON lines on stdout (`ready`, `joined`, `done`, `failed`). The harness sends `go` on
stdin, and ends the process.
"""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import Awaitable
from typing import NoReturn

import msgspec
import uvloop

from bench.drive import publish, publish_async
from bench.events import Check, Watch
from bench.job import Job
from bench.peers import load_peer
from bench.peers.base import Peer, Sink
from bench.speech import Clock, say


class Spoken(Watch):
    """Reports the progress of a check to the harness, from any thread in which the subject calls back."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.check: Check | None = None

    def joined(self) -> None:
        self.clock = Clock()
        say("joined")

    def ended(self) -> None:
        assert self.check is not None
        self.clock.done(self.check.received, latencies_ns=self.check.latencies_ns)

    def wrong(self, why: str) -> NoReturn:
        say("failed", why=why)
        os._exit(1)  # a client's own thread would swallow an exception


def run_publisher(job: Job, peer: Peer) -> None:
    opened = peer.publisher(job)
    if inspect.isawaitable(opened):
        uvloop.run(publish_async(job, opened))
    else:
        publish(job, opened)


def run_subscriber(job: Job, peer: Peer) -> None:
    spoken = Spoken()
    spoken.check = Check(job.load.publishers, job.load.size, spoken)
    receiving = peer.subscribe(job, Sink(job, spoken.check, ready=lambda: say("ready")))
    if inspect.isawaitable(receiving):
        uvloop.run(to_the_end(receiving))


async def to_the_end(receiving: Awaitable[None]) -> None:
    await receiving


def main() -> None:
    job = msgspec.json.decode(sys.argv[1], type=Job)
    run = run_publisher if job.lane >= 0 else run_subscriber
    try:
        run(job, load_peer(job.peer))
    except (
        Exception
    ) as error:  # any exception of a subject is a failed measurement, and is reported to the harness
        traceback.print_exc()
        say("failed", why=f"{type(error).__name__}: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
