"""An effect that can't be performed: the others are performed all the same, and the error is raised afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

E = TypeVar("E")


class EffectsFailed(Exception):
    """Some effects could not be performed; everything else was done. Each comes with its error."""

    def __init__(self, failures: list[tuple[object, Exception]]) -> None:
        self.failures = failures
        effect, error = failures[0]
        super().__init__(f"{len(failures)} effects failed, first {type(effect).__name__}: {error!r}")


class EffectPerformer(Generic[E]):
    """Performs effects one by one. An error of one does not keep the others from being performed.

    >>> performer = EffectPerformer(lambda effect, now: print(10 // effect))
    >>> performer.perform([5, 0, 2], 0.0)
    2
    5
    >>> performer.has_failed
    True
    """

    def __init__(self, perform: Callable[[E, float], None]) -> None:
        self._perform = perform
        self._failures: list[tuple[object, Exception]] = []

    @property
    def has_failed(self) -> bool:
        """Whether some effect failed since the last time that this was raised."""
        return bool(self._failures)

    def perform(self, effects: Iterable[E], now: float) -> None:
        """Perform these, in order."""
        for effect in effects:
            try:
                self._perform(effect, now)
            except Exception as error:
                self.failed(effect, error)

    def failed(self, effect: object, error: Exception) -> None:
        """Something could not be done."""
        self._failures.append((effect, error))

    def raise_failures(self) -> None:
        """Raise `EffectsFailed` if some effect failed. Everything else is done by then."""
        if self._failures:
            failures, self._failures = self._failures, []
            raise EffectsFailed(failures) from failures[0][1]
