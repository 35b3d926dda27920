"""Tells the core that events will never arrive: see `reknit.protocol.recovery.loss_reports`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from reknit.ledger import Series
from reknit.node.core.core import Core
from reknit.protocol.machine import JOURNAL
from reknit.protocol.recovery.loss_reports import TEXT, NeverArrives


class LossRecorder:
    """Used by everything on a node that finds out about losses: relays, bridges, links, gateways."""

    def __init__(self, *, core: Core, run_machines: Callable[[], None]) -> None:
        self._core = core
        self._run_machines = run_machines

    def skip(self, series: Series, start: int, stop: int, text: str = TEXT) -> None:
        """`[start, stop)` will never arrive: continue after it, and report it to the subscribers that are owed it."""
        now = asyncio.get_running_loop().time()
        self._core.recovery.receive(NeverArrives(series, start, stop, text), JOURNAL, now)
        self._run_machines()
