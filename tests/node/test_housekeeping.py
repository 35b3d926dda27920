"""The timer of a node: chores come at their interval, whatever else makes the core tick."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any, cast

from reknit.config import JournalSettings
from reknit.node.housekeeping import HOUSEKEEPING_S, Housekeeping
from reknit.testing.fabric.fabric import Fabric


class TickingCore:
    """A core that is due again a little before the chores, each time."""

    def __init__(self) -> None:
        self.ticks: list[float] = []

    def tick(self, now: float) -> None:
        self.ticks.append(now)

    def next_deadline(self) -> float:
        return self.ticks[-1] + HOUSEKEEPING_S * 0.9 if self.ticks else 0.0


class NothingToSave:
    """A journal whose index has everything."""

    unsaved_bytes = 0
    is_save_wanted = False


class TrimmedJournal:
    """A journal of which retention removes more once its index is saved."""

    unsaved_bytes = 1
    is_save_wanted = True

    def checkpoint(self) -> int:
        self.is_save_wanted = False
        return 0


def test_chores_are_not_delayed_by_a_tick_just_before_them() -> None:
    """Chores a second apart looked like a suspension of the process, and silent peers were given more time."""
    core, chores = TickingCore(), list[float]()

    async def main() -> None:
        housekeeping = Housekeeping(
            core=cast(Any, core),
            chores=[chores.append],
            run_machines=lambda: housekeeping.reschedule(),
            sample=lambda now: None,
            journal=cast(Any, NothingToSave()),
            settings=JournalSettings(index_interval_s=1_000.0),
        )
        loop = asyncio.get_running_loop()
        loop.call_later(HOUSEKEEPING_S * 0.99, housekeeping.reschedule)
        housekeeping.start()
        await asyncio.sleep(60.0)
        await housekeeping.stop()

    with Fabric() as fabric:
        fabric.run(main())
    gaps = [later - earlier for earlier, later in pairwise(chores)]
    assert len(gaps) > 100
    assert max(gaps) < HOUSEKEEPING_S * 1.01


def test_the_index_is_saved_early_while_retention_waits_for_it() -> None:
    journal, core = TrimmedJournal(), TickingCore()

    async def main() -> None:
        housekeeping = Housekeeping(
            core=cast(Any, core),
            chores=[],
            run_machines=lambda: None,
            sample=lambda now: None,
            journal=cast(Any, journal),
            settings=JournalSettings(index_interval_s=1_000.0),
        )
        housekeeping.start()
        await asyncio.sleep(5.0)
        await housekeeping.stop()

    with Fabric() as fabric:
        fabric.run(main())
    assert not journal.is_save_wanted
