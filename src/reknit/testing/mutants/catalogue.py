"""Every mutant, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from reknit.testing.mutants import (
    anycast,
    dispatch,
    drivers,
    groups,
    links,
    node,
    publish,
    queues,
    recovery,
    schedule,
    store,
    subscribe,
    trust,
)
from reknit.testing.mutants.mutant import Mutant, UnknownMutant

MUTANTS: Final = (
    *publish.MUTANTS,
    *dispatch.MUTANTS,
    *subscribe.MUTANTS,
    *recovery.MUTANTS,
    *node.MUTANTS,
    *store.MUTANTS,
    *links.MUTANTS,
    *anycast.MUTANTS,
    *queues.MUTANTS,
    *groups.MUTANTS,
    *schedule.MUTANTS,
    *drivers.MUTANTS,
    *trust.MUTANTS,
)


def chosen(names: Sequence[str]) -> list[Mutant]:
    """The mutants with these names, or all. Raises `UnknownMutant`."""
    by_name = {mutant.name: mutant for mutant in MUTANTS}
    for name in names:
        if name not in by_name:
            raise UnknownMutant(name, "there is none of this name; --list shows all")
    return [by_name[name] for name in names] or list(MUTANTS)
