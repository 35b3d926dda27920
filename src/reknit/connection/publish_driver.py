"""Publish until acknowledged: runs the publishing machine of one source over a connection.

The machine numbers batches, holds them until the node acknowledges them, and sends them again after a reconnection.
The driver performs the machine's effects and wakes everyone who waits for events to be stored. Publishers of every
kind use it; they differ only in how events become batches:

    driver = PublishDriver(Publisher(source, topic), connection, on_refused=…)
    driver.receive(Connected())            # and every message of the node about this source
    driver.machine.put(payloads, now_us)   # or `machine.forward(batch)`, for a batch with seqs of its own
    driver.perform()
    await driver.flush()
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, assert_never

from reknit.connection.futures import FailedFutures, fail_all, resolve, resolve_all
from reknit.errors import LocalError, Refused
from reknit.frame import Buffer
from reknit.protocol.publish import publisher as machines
from reknit.wire.messages import Message

StoredFuture = asyncio.Future[None]
"""Done when the events are stored: durable on the node."""

NODE = "node"


class PublishOutput(Protocol):
    """Where a driver sends: a connection to a node."""

    def send(self, *messages: Message) -> None:
        """Send messages."""

    def send_buffers(self, buffers: Sequence[Buffer]) -> None:
        """Send the bytes of batches."""


def _ignore(*args: object) -> None:
    """Nobody listens."""


class PublishDriver:
    """Performs the effects of one source's machine, and resolves futures when events are stored.

    `on_stored(stop)` is called when everything before `stop` is stored, `on_numbered()` when the source's next seq
    becomes known, and `on_refused(error)` when the node will never take events of this source. The last one has to
    call `fail`. Outside asyncio, give a `clock`.
    """

    def __init__(
        self,
        machine: machines.SourcePublisher,
        output: PublishOutput,
        *,
        on_refused: Callable[[Refused], None],
        on_stored: Callable[[int], None] = _ignore,
        on_numbered: Callable[[], None] = _ignore,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.machine = machine
        self.error: LocalError | Refused | None = None
        """Why nothing more can be published."""
        self._output = output
        self._on_refused = on_refused
        self._on_stored = on_stored
        self._on_numbered = on_numbered
        self._clock = clock or asyncio.get_running_loop().time
        self._waiting: deque[tuple[int, list[StoredFuture]]] = deque()
        """(stop, futures): they are done when everything before `stop` is stored."""
        self._numbered: StoredFuture | None = None
        self.failed = FailedFutures()
        """The calls whose events were not stored."""

    @property
    def first_unacked(self) -> int:
        """The first seq that is not known to be stored."""
        unacked = self.machine.unacked
        return unacked[0].first if unacked else self.machine.next_seq

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for anything."""
        return not self._waiting

    # -- waiting

    def wait(self, futures: list[StoredFuture]) -> None:
        """Resolve these futures when everything that was given to the machine so far is stored."""
        self._waiting.append((self.machine.next_seq, futures))

    async def flush(self) -> None:
        """Return when everything that was given to the machine so far is stored. Raises the error otherwise."""
        self.check()
        if self.machine.unacked:
            stored: StoredFuture = asyncio.get_running_loop().create_future()
            self.wait([stored])
            await stored

    def check(self) -> None:
        """Raise the error, if nothing more can be published."""
        if self.error is not None:
            self.failed.heard()
            raise self.error

    async def numbered(self) -> None:
        """Return when the source's next seq is known, or nothing can be published any more."""
        if not self.machine.numbered and self.error is None:
            self._numbered = self._numbered or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._numbered)

    def fail(self, error: LocalError | Refused) -> None:
        """Nothing more can be published: raise the error in everyone who waits."""
        self.error = error
        futures = [future for _, group in self._waiting for future in group]
        self._waiting.clear()
        self.failed.fail(futures, error)
        if self._numbered is not None:
            fail_all([self._numbered], error)

    # -- the machine

    def receive(self, message: machines.Input) -> None:
        """The node sent a message about this source, or the connection changed."""
        self.machine.receive(message, NODE, self._clock())
        self.perform()

    def tick(self) -> None:
        """Resend events that too few caches have stored."""
        self.machine.tick(self._clock())
        self.perform()

    def perform(self) -> None:
        """Perform the machine's effects, once per call for all batches that were given to it."""
        buffers: list[Buffer] = []
        for effect in self.machine.take_effects():
            match effect:
                case machines.SendBytes(data=data):
                    buffers.append(data)
                case machines.SendToNode(message=message):
                    self._output.send(message)
                case machines.Confirm(stop=stop):
                    self._confirm(stop)
                case machines.Numbered():
                    resolve(self._numbered)
                    self._on_numbered()
                case machines.PublishRefused(code=code, text=text):
                    self._on_refused(Refused(code, text))
                case _:
                    assert_never(effect)
        if buffers:
            self._output.send_buffers(buffers)

    def _confirm(self, stop: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= stop:
            resolve_all(waiting.popleft()[1])
        self._on_stored(stop)
