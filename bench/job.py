"""What is run, as values: a load, and each process's part of it."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Mode(StrEnum):
    SINGLE = "single"  # one call and one hand-over an event
    BATCH = "batch"  # many events a call: a batch API where there is one, packed by hand where there is none
    PACED = "paced"  # one by one at a low rate, each with the time it was sent


class Journal(StrEnum):
    DURABLE = "durable"
    MEMORY = "memory"


class Load(msgspec.Struct, frozen=True):
    """One way of loading a subject; what two cases share is run once a round."""

    size: int
    mode: Mode = Mode.SINGLE
    publishers: int = 1
    subscribers: int = 1
    stalled: int = 0  # further subscribers that are stopped before the first event
    count: int = 0  # events a publisher; 0 publishes for a time
    journal: Journal = Journal.DURABLE  # reknit's; a peer has what it has

    @property
    def shape(self) -> str:
        return f"{self.publishers}x{self.subscribers}"


class Job(msgspec.Struct, frozen=True):
    """One worker process's part of a load."""

    peer: str
    load: Load
    seconds: float
    server_port: int
    lane_ports: tuple[int, ...]  # for those without a server: a publisher listens on its lane's port
    lane: int = -1  # a publisher's; -1 subscribes

    @property
    def per_batch(self) -> int:
        """Hundreds of events, in about the same number of bytes for small and large ones."""
        return 500 if self.load.size <= 128 else 200


PACED_EVENTS_PER_S = 1_000
