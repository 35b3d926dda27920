"""What a checkpoint writes: everything that changed since the last one, encoded in one moment.

A checkpoint must hold exactly what the log holds up to its position. The ledger is ahead of the log by what
is staged, so a snapshot is taken at the staged end and written only when the log has been synced that far.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reknit.ledger import Ledger
from reknit.ledger import Stream as StreamKey
from reknit.seqset import SeqSet
from reknit.store.index import Snapshot, account_key, account_row, ends_row, stream_row
from reknit.store.streams import Streams


@dataclass(slots=True)
class Dirty:
    """What the ledger changed and the index does not have yet. Stays when a checkpoint fails."""

    streams: set[StreamKey] = field(default_factory=set)
    accounts: set[str] = field(default_factory=set)
    ends: set[tuple[str, StreamKey]] = field(default_factory=set)

    def take(self, ledger: Ledger) -> None:
        """Add what changed since the last time."""
        streams, accounts, ends = ledger.take_changes()
        self.streams |= streams
        self.accounts |= accounts
        self.ends |= ends

    def __bool__(self) -> bool:
        return bool(self.streams or self.accounts or self.ends)


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
    """Encode what is dirty into a snapshot."""
    wanted = dirty.streams | {stream for _, stream in dirty.ends if streams.get(*stream) is None}
    for topic, source in wanted:
        published = ledger.published.get((topic, source)) or SeqSet()
        key, row = stream_row(streams.make(topic, source), published)
        snapshot.streams[key] = row
    for name in dirty.accounts:
        account = ledger.accounts.get(name)
        if account is None:
            snapshot.accounts[account_key(numbers.of(name))] = None
        else:
            account_number, account_data = account_row(numbers.of(name), account)
            snapshot.accounts[account_number] = account_data
    for name, (topic, source) in dirty.ends:
        account = ledger.accounts.get(name)
        ends = None if account is None else account.ends.get((topic, source))
        ends_key, data = ends_row(numbers.of(name), streams.make(topic, source), ends)
        snapshot.ends[ends_key] = data
