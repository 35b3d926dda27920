"""A load, and the part of each process in it, as values."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Mode(StrEnum):
    SINGLE = "single"  # one call and one delivery per event
    BATCH = "batch"  # many events per call: through a batch API if there is one, otherwise packed by hand
    PACED = "paced"  # single events at a low rate, each with its send time


class Journal(StrEnum):
    DURABLE = "durable"
    MEMORY = "memory"


class Load(msgspec.Struct, frozen=True):
    """A load for a subject. A load that two cases share is run once per round."""

    size: int
    mode: Mode = Mode.SINGLE
    publishers: int = 1
    subscribers: int = 1
    stalled: int = 0  # further subscribers that are stopped before the first event
    count: int = 0  # events per publisher; 0: publish for a time
    journal: Journal = Journal.DURABLE  # only reknit has a choice

    @property
    def shape(self) -> str:
        return f"{self.publishers}x{self.subscribers}"


class Job(msgspec.Struct, frozen=True):
    """One worker process's part of a load."""

    peer: str
    load: Load
    seconds: float
    server_port: int
    lane_ports: tuple[int, ...]  # for subjects without a server: a publisher listens on its lane's port
    lane: int = -1  # of a publisher; -1: a subscriber

    @property
    def per_batch(self) -> int:
        """Hundreds of events: fewer if they are large, so that batches do not grow too long."""
        return 500 if self.load.size <= 128 else 200


PACED_EVENTS_PER_S = 1_000
