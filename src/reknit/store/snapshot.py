"""What a checkpoint writes: everything that changed since the last one, as it was in one moment.

A checkpoint must hold exactly what the log holds up to its position. The ledger is ahead of the log by what
is staged, so a snapshot is taken at the staged end and written only when the log has been synced that far.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reknit.ledger import Ledger
from reknit.ledger import Stream as StreamKey
from reknit.store.rows import AccountRow, Snapshot, StreamRow, ends_of
from reknit.store.series import Streams


@dataclass(slots=True)
class Dirty:
    """What the ledger changed and the index does not have yet. Stays when a checkpoint fails."""

    streams: set[StreamKey] = field(default_factory=set)
    accounts: set[str] = field(default_factory=set)
    ends: set[tuple[str, StreamKey]] = field(default_factory=set)
    tallies: set[tuple[str, StreamKey, int]] = field(default_factory=set)
    letters: set[bytes] = field(default_factory=set)

    def take(self, ledger: Ledger) -> None:
        """Add what changed since the last time."""
        streams, accounts, ends, tallies, letters = ledger.take_changes()
        self.streams |= streams
        self.accounts |= accounts
        self.ends |= ends
        self.tallies |= tallies
        self.letters |= letters

    def __bool__(self) -> bool:
        return bool(self.streams or self.accounts or self.ends or self.tallies or self.letters)


class AccountNumbers:
    """Numbers for durable subscribers: short keys in the index. A number is not used for two names."""

    def __init__(self, numbers: dict[str, int]) -> None:
        self._numbers = numbers
        self._next = max(numbers.values(), default=0) + 1

    def of(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = self._next
            self._next += 1
        return number


def fill(snapshot: Snapshot, dirty: Dirty, ledger: Ledger, streams: Streams, numbers: AccountNumbers) -> None:
    """Put what is dirty into a snapshot, as it is now. This is done while nothing can be staged, so it is short."""
    named = {stream for _, stream in dirty.ends} | {stream for _, stream, _ in dirty.tallies}
    unknown = {stream for stream in named if streams.get(*stream) is None}
    for key in dirty.streams | unknown:
        stream = streams.make(*key)
        skipped = ledger.skipped.get(key)
        snapshot.streams[stream.number] = StreamRow.of(stream, ledger.published.get(key), skipped)
    for name in dirty.accounts:
        account = ledger.accounts.get(name)
        snapshot.accounts[numbers.of(name)] = None if account is None else AccountRow.of(account)
    for name, key in dirty.ends:
        account = ledger.accounts.get(name)
        stream = streams.make(*key)
        ends = None if account is None else ends_of(account, stream)
        snapshot.ends[numbers.of(name), stream.number] = ends
    for name, key, seq in dirty.tallies:
        account = ledger.accounts.get(name)
        tally = None if account is None else account.tallies.get(key, {}).get(seq)
        snapshot.tallies[numbers.of(name), streams.make(*key).number, seq] = tally
    for source in dirty.letters:
        letters = ledger.letters[source]
        snapshot.letters[source] = (letters.redriven.ranges(), letters.dropped.ranges(), letters.last)
