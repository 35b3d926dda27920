"""The content of a checkpoint: everything that changed since the last one, as of one moment."""

from __future__ import annotations

from dataclasses import dataclass, field

from reknit.ledger import Ledger, Series
from reknit.store.index.rows import AccountRow, SeriesRow, Snapshot, outcomes_of
from reknit.store.index.series import SeriesTable


@dataclass(slots=True)
class UnsavedChanges:
    """Changes of the ledger that are not in the index yet. They stay when a checkpoint fails."""

    series: set[Series] = field(default_factory=set)
    accounts: set[str] = field(default_factory=set)
    ends: set[tuple[str, Series]] = field(default_factory=set)
    tallies: set[tuple[str, Series, int]] = field(default_factory=set)
    letters: set[bytes] = field(default_factory=set)

    def take(self, ledger: Ledger) -> None:
        """Add the changes since the last call."""
        changes = ledger.take_changes()
        self.series |= changes.series
        self.accounts |= changes.accounts
        self.ends |= changes.ends
        self.tallies |= changes.tallies
        self.letters |= changes.letters

    def add_series(self, series: set[Series]) -> None:
        """Save these too."""
        self.series |= series

    def add_accounts(self, names: set[str]) -> None:
        """Save these too."""
        self.accounts |= names

    def __bool__(self) -> bool:
        return bool(self.series or self.accounts or self.ends or self.tallies or self.letters)


class AccountNumbers:
    """Numbers for durable subscribers: short keys in the index. No number is used for two names."""

    def __init__(self, numbers: dict[str, int]) -> None:
        self._numbers = numbers
        self._next = max(numbers.values(), default=0) + 1

    def of(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = self._next
            self._next += 1
        return number


def fill(
    snapshot: Snapshot, unsaved: UnsavedChanges, ledger: Ledger, table: SeriesTable, numbers: AccountNumbers
) -> None:
    """Put everything unsaved into a snapshot of this moment. Nothing can be staged meanwhile, so this is short."""
    named = {series for _, series in unsaved.ends} | {series for _, series, _ in unsaved.tallies}
    unknown = {series for series in named if table.get(*series) is None}
    for key in unsaved.series | unknown:
        series = table.make(*key)
        snapshot.series[series.number] = SeriesRow.of(series, ledger)
    for name in unsaved.accounts:
        account = ledger.accounts.get(name)
        snapshot.accounts[numbers.of(name)] = None if account is None else AccountRow.of(account)
    for name, key in unsaved.ends:
        account = ledger.accounts.get(name)
        series = table.make(*key)
        outcomes = None if account is None else outcomes_of(account, series)
        snapshot.ends[numbers.of(name), series.number] = outcomes
    for name, key, seq in unsaved.tallies:
        account = ledger.accounts.get(name)
        tally = None if account is None else account.tallies.get(key, {}).get(seq)
        snapshot.tallies[numbers.of(name), table.make(*key).number, seq] = tally
    for source in unsaved.letters:
        letters = ledger.letters[source]
        snapshot.letters[source] = (letters.redriven.ranges(), letters.dropped.ranges(), letters.last)
