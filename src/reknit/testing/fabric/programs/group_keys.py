"""The keys of a simulated group, and how members replace them one step after the other while they run."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from reknit.protocol.sealing.shared_keys import KEY_BYTES, SharedKey, SharedKeys


class KeyRotation:
    """For each key after the first: everyone accepts it, then everyone uses it, then the old one is removed.

    A step begins when all members took the one before: as an operator does it, who copies a file to every host.
    """

    def __init__(self, rng: Random, count: int) -> None:
        keys = [SharedKey(rng.randbytes(KEY_BYTES)) for _ in range(count)]
        self._steps = [SharedKeys(keys[:1])]
        for old, new in pairwise(keys):
            self._steps += [SharedKeys([old, new]), SharedKeys([new, old]), SharedKeys([new])]
        self._step = 0
        self._taken: dict[str, int] = {}
        """The step that each running member has."""

    def join(self, member: str) -> SharedKeys:
        """The keys of a member that starts now."""
        self._taken[member] = self._step
        return self._steps[self._step]

    def leave(self, member: str) -> None:
        """A member left or crashed: nobody waits for it."""
        self._taken.pop(member, None)

    def next(self, member: str) -> SharedKeys | None:
        """The keys of the next step for a member, if there is one that it may take."""
        if self._taken[member] < self._step:
            return self.join(member)
        if set(self._taken.values()) == {self._step} and self._step + 1 < len(self._steps):
            self._step += 1
            return self.join(member)
        return None
