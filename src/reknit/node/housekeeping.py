"""What a node does when time passes: wakes its machines when something is due, and tidies up every so often."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from reknit.errors import JournalError

if TYPE_CHECKING:
    from reknit.node.node import Node

log = logging.getLogger("reknit.node")

HOUSEKEEPING_S: Final = 0.5
INDEX_LOOK_S: Final = 0.2


class Housekeeping:
    """The timer of one node, and the task that saves its journal's index."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._house_at = 0.0
        self._saving: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look after the node from now on."""
        self._schedule(self._now() + HOUSEKEEPING_S)
        self._saving = asyncio.create_task(self._save_index())

    async def stop(self) -> None:
        """… and no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._saving is not None:
            self._saving.cancel()
            await asyncio.gather(self._saving, return_exceptions=True)

    def look(self) -> None:
        """The machines moved: be there when they want something next."""
        node = self._node
        deadlines = (
            node.core.next_deadline(),
            node.anycast.machine.next_deadline(),
            node.links.routes.next_deadline(),
        )
        due = min((at for at in deadlines if at is not None), default=None)
        if due is not None and due < self._timer_at:
            self._schedule(due)

    def _schedule(self, due: float) -> None:
        """Look after what is due by then, or after the usual while."""
        now = self._now()
        self._timer_at = min(max(due, now + 0.001), now + HOUSEKEEPING_S)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._timer_at, self._keep_house)

    def _keep_house(self) -> None:
        node, now = self._node, self._now()
        self._timer_at = float("inf")
        node.core.tick(now)
        node.anycast.machine.tick(now)
        node.links.routes.tick(now)
        if now >= self._house_at:
            self._house_at = now + HOUSEKEEPING_S
            node.peers.check(now)
            node.core.trim(now)
        node.run_machines()
        node.answers.sample(now)
        if self._timer_at == float("inf"):
            self._schedule(now + HOUSEKEEPING_S)

    async def _save_index(self) -> None:
        """Save the journal's index off the loop: seldom, as that holds up the disk, unless much is not in it yet."""
        journal, settings, saved_at = self._node.journal, self._node.config.journal, self._now()
        while True:
            await asyncio.sleep(max(min(settings.index_interval_s, INDEX_LOOK_S), 0.01))
            is_due = self._now() - saved_at >= settings.index_interval_s
            if not is_due and journal.unsaved_bytes < settings.index_bytes:
                continue
            saved_at = self._now()
            try:
                await asyncio.to_thread(journal.checkpoint)
            except JournalError as error:
                log.warning("the index could not be saved, it will be tried again: %s", error)
