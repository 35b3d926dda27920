"""Notices an event loop that is stuck: everything on a node waits for the one piece of code that does not let go.

The loop beats a few times a second; a thread looks whether it does, and logs where the loop is when it does not. A
process that was suspended is not stuck: then the thread did not run either.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from typing import Final

from reknit import environment

log = logging.getLogger("reknit.node")

BEAT_S: Final = 0.25
STUCK_S: Final = 1.0
"""A loop that does not beat for longer than this is stuck."""
FRAMES_MAX: Final = 12


class LoopPulse:
    """Judges beats and looks; no clock of its own.

    >>> pulse = LoopPulse(0.0)
    >>> pulse.look(0.5), pulse.look(1.0), pulse.look(1.5), pulse.look(2.0)
    (0.0, 0.0, 1.5, 0.0)
    >>> pulse.beat(2.2)
    2.2
    """

    def __init__(self, now: float) -> None:
        self._beat_at = self._looked_at = now
        self._is_stuck = False

    def beat(self, now: float) -> float:
        """The loop runs. Returns how long it was stuck, if that was noticed."""
        stuck_s = now - self._beat_at if self._is_stuck else 0.0
        self._beat_at, self._is_stuck = now, False
        return stuck_s

    def look(self, now: float) -> float:
        """How long the loop has been stuck, when that is noticed; 0 while it runs, and after it was noticed."""
        if now - self._looked_at > STUCK_S:  # nobody ran: the process was suspended
            self._beat_at = now
        self._looked_at = now
        if self._is_stuck or now - self._beat_at <= STUCK_S:
            return 0.0
        self._is_stuck = True
        return now - self._beat_at


class Watchdog:
    """Watches the event loop on which it is started. It runs beside a node, as an `Attachment`."""

    def __init__(self) -> None:
        self._pulse = LoopPulse(0.0)
        self._stopped = threading.Event()
        self._worker: environment.Worker | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._thread_id = 0

    async def start(self) -> None:
        """Begin, unless time is not real here."""
        if type(environment.current()) is not environment.Environment:
            return
        self._thread_id = threading.get_ident()
        self._pulse = LoopPulse(environment.monotonic())
        self._beat()
        self._worker = environment.current().start_worker("reknit-watchdog")
        self._worker.put(self._watch)

    async def stop(self) -> None:
        """End."""
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._worker is not None:
            await self._worker.stop()

    def _beat(self) -> None:
        stuck_s = self._pulse.beat(environment.monotonic())
        if stuck_s:
            log.warning("the event loop runs again, after %.1f s", stuck_s)
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    def _watch(self) -> None:
        while not self._stopped.wait(BEAT_S):
            stuck_s = self._pulse.look(environment.monotonic())
            if stuck_s:
                log.warning("the event loop is stuck for %.1f s:\n%s", stuck_s, self._stack())

    def _stack(self) -> str:
        """Where the loop is, innermost last."""
        frame = sys._current_frames().get(self._thread_id)
        return "".join(traceback.format_stack(frame)[-FRAMES_MAX:]) if frame is not None else "(unknown)"
