"""Outcomes that wait to be told to neighbours, together."""

from __future__ import annotations

from reknit.protocol.anycast.inputs import ReturnOutcome
from reknit.wire.links import Return, Returned


class Returns:
    """By neighbour: the outcomes of events that it forwarded, and the highest number among them."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Return]] = {}
        self._numbers: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._rows)

    def add(self, name: str, outcome: ReturnOutcome) -> None:
        """A neighbour is to be told an outcome."""
        self._rows.setdefault(name, []).append(outcome.row)
        self._numbers[name] = max(self._numbers.get(name, 0), outcome.number)

    def drop(self, name: str) -> None:
        """The link is gone: the neighbour knows that these outcomes are in doubt."""
        self._rows.pop(name, None)
        self._numbers.pop(name, None)

    def take(self) -> list[tuple[str, Returned]]:
        """The message for each neighbour."""
        rows, self._rows = self._rows, {}
        numbers, self._numbers = self._numbers, {}
        return [(name, Returned(several, numbers[name])) for name, several in rows.items()]
