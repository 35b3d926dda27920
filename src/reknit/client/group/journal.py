"""What a group carries goes to the node of a member's session too: groups are topics.

Every member that has a session brings what it was delivered, as the batches that came and under their own sources
and seqs. The node takes each event once, so that copies that several members bring are dropped by a range check.
What the node misses and nobody brings in time is given up, and lost in the node's ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from reknit.batch import Batch
from reknit.errors import LocalError, Refused, ReknitError
from reknit.protocol.publish import publisher as machines
from reknit.wire.messages import Expect

if TYPE_CHECKING:
    from reknit.client.session import Session

log = logging.getLogger("reknit.group")


class Relay:
    """One source of a group, on its way to the node. It stands among the session's publishers."""

    def __init__(self, journal: GroupJournal, source: bytes) -> None:
        self._journal = journal
        self._machine = machines.Publisher(source, journal.topic)
        self._waiting: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._failed: LocalError | Refused | None = None

    @property
    def source(self) -> bytes:
        return self._machine.source

    @property
    def topic(self) -> str:
        return self._machine.topic

    @property
    def unkept_bytes(self) -> int:
        return self._machine.unacked_bytes

    def put(self, batch: Batch) -> None:
        """Bring a batch to the node, and hold it until it is kept there."""
        if self._failed is None:
            self._machine.forward(batch)
            self._perform()

    async def flush(self) -> None:
        """Return when the node has everything so far, or will never have it."""
        if self._machine.unacked and self._failed is None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future

    def fail(self, error: LocalError | Refused) -> None:
        """The node takes no more of this source, or the session is closed."""
        lost = sum(batch.count for batch in self._machine.unacked)
        if lost:
            log.error("%d events of %s are not at the node: %s", lost, self.source.hex(), error)
        self._failed = error
        self._machine.unacked.clear()
        self._machine.unacked_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
        self._release()

    def receive(self, message: machines.Input) -> None:
        """Something for this source came from the node, or the connection changed."""
        if isinstance(message, Expect) and self._follows(message.seq) > message.seq:
            self._miss(message.seq)  # another member may bring it
            return
        self._machine.receive(message, "node", 0.0)
        self._perform()

    def _perform(self) -> None:
        link = self._journal.session.link
        for effect in self._machine.take_effects():
            match effect:
                case machines.SendBytes(data=data):
                    link.send_buffers([data])
                case machines.SendToNode(message=message):
                    link.send(message)
                case machines.PublishRefused(code=code, text=text):
                    self.fail(Refused(code, text))
                case machines.Confirm() | machines.Numbered():
                    pass
        if not self._machine.unacked:
            self._release()
        self._journal.kept()

    def _release(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    # -- gaps

    def _miss(self, seq: int) -> None:
        """The node misses `[seq, what we have)`. Wait for a while for another member to bring it."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._journal.skip_s, self._try_again, seq)

    def _follows(self, seq: int) -> int:
        """The first seq from there on that we have; 0 for none."""
        return next((max(batch.first, seq) for batch in self._machine.unacked if batch.stop > seq), 0)

    def _try_again(self, seq: int) -> None:
        self._timer = None
        if self._failed is None and (first := self._follows(seq)):
            self._journal.give_up(self, seq, first)

    def go_on(self) -> None:
        """The node goes on behind the gap, or has filled it."""
        self._machine.receive(Expect(self.source, 1), "node", 0.0)
        self._perform()


class GroupJournal:
    """Brings a group's events to the node of a session."""

    def __init__(self, session: Session, topic: str) -> None:
        self.session, self.topic = session, topic
        self.skip_s = session.config.group.skip_s
        self._window_bytes = session.config.limits.publish_window_bytes
        self._relays: dict[bytes, Relay] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        self._room.set()

    def put(self, batch: Batch) -> None:
        """A batch was delivered here."""
        relay = self._relays.get(batch.source)
        if relay is None:
            relay = self._relays[batch.source] = Relay(self, batch.source)
            self.session.add_publisher(relay)
        relay.put(batch)

    def kept(self) -> None:
        """See whether there is room."""
        if sum(relay.unkept_bytes for relay in self._relays.values()) < self._window_bytes:
            self._room.set()
        else:
            self._room.clear()

    @property
    def has_room(self) -> bool:
        return self._room.is_set()

    async def room(self) -> None:
        """Return when the node has kept enough of what it was brought. Who reads waits here, and so do senders."""
        await self._room.wait()

    def forget(self, sources: set[bytes]) -> None:
        """These are members now: relays of others go when the node has all of theirs."""
        gone = [r for source, r in self._relays.items() if source not in sources and not r.unkept_bytes]
        for relay in gone:
            del self._relays[relay.source]
            self.session.forget(relay)

    def give_up(self, relay: Relay, start: int, stop: int) -> None:
        """Nobody brought `[start, stop)`."""
        task = asyncio.create_task(self._skip(relay, start, stop))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _skip(self, relay: Relay, start: int, stop: int) -> None:
        args = {"topic": self.topic, "source": relay.source.hex(), "start": start, "stop": stop}
        try:
            await self.session.ask("skip", **args)
        except Refused as refused:
            relay.fail(refused)
        except ReknitError as error:
            log.warning("the node could not be told of a gap: %s", error)  # it asks again when it is back
        else:
            relay.go_on()

    async def close(self, wait_s: float) -> None:
        """Return when the node has everything, or can't be reached, or after so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                if self.session.is_connected:
                    await asyncio.gather(*(relay.flush() for relay in list(self._relays.values())))
        for relay in list(self._relays.values()):
            self.session.forget(relay)
            relay.fail(LocalError(f"the group {self.topic!r} was left"))
        for task in list(self._tasks):
            task.cancel()
