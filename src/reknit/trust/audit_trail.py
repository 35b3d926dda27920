"""Which entries of the audit trail are written, and when: it can't be used to fill the journal.

    an entry that is the first of its kind    written at once
    the same again within `SUM_S`             counted: one entry with the count is written when the time is over
    more bytes than a day may have            counted until there is room
    more different ones than `KEYS_MAX`       counted together, as those of `others`
    an order or a change                      as above, but always with room, and never with others

"The same" has the same kind, action, identity, door, address and code. Texts differ, and the first one is written.
Nothing here waits or reads a clock: `note` and `tick` are given the time, `take_entries` gives what is to be written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from reknit.audit import AuditEntry, AuditKind, write_entry
from reknit.token_bucket import TokenBucket

SUM_S: Final = 60.0
KEYS_MAX: Final = 1_000
"""How many different entries are told apart within `SUM_S`."""
DAY_S: Final = 86_400.0
ENTRY_BYTES: Final = 128
"""About what an event takes in the journal beside its payload."""
TEXT_CHARS_MAX: Final = 300
OTHERS: Final = "others"
ALWAYS: Final[frozenset[AuditKind]] = frozenset(("order", "change"))
"""Only admins cause these: they are written whatever others do."""

Key = tuple[str, ...]


class _Sum:
    """Entries alike since the last one that was written."""

    __slots__ = ("due", "entry")

    def __init__(self, due: float) -> None:
        self.due = due
        """When it is written, if anything came; else forgotten."""
        self.entry: AuditEntry | None = None

    def add(self, entry: AuditEntry) -> None:
        before = self.entry
        if before is None:
            self.entry = replace(entry, since_us=entry.time_us)
        else:
            count, events = before.count + entry.count, before.events + entry.events
            self.entry = replace(before, time_us=entry.time_us, count=count, events=events)


class AuditTrail:
    """The entries of one node. `bytes_per_day_max` is for those that anybody can cause.

    >>> trail = AuditTrail(bytes_per_day_max=1 << 20)
    >>> for at in range(3):
    ...     trail.note(AuditEntry(kind="login", action="login", who="eve", code="UNAUTHENTICATED"), now=float(at))
    >>> [entry.count for entry in trail.take_entries()], trail.next_deadline()
    ([1], 60.0)
    >>> trail.tick(60.0)
    >>> [entry.count for entry in trail.take_entries()]
    [2]
    """

    def __init__(self, bytes_per_day_max: int) -> None:
        self._room = TokenBucket(bytes_per_day_max / DAY_S, bytes_per_day_max)
        self._sums: dict[Key, _Sum] = {}
        """In the order in which they are due."""
        self.entries: list[AuditEntry] = []
        """What `take_entries` returns next."""

    def note(self, entry: AuditEntry, now: float) -> None:
        """Something happened."""
        if len(entry.text) > TEXT_CHARS_MAX:
            entry = replace(entry, text=f"{entry.text[:TEXT_CHARS_MAX]}…")
        key = _key(entry)
        if key not in self._sums and len(self._sums) >= KEYS_MAX and entry.kind not in ALWAYS:
            entry = replace(entry, who=OTHERS, address="", text="", details={})
            key = _key(entry)
        known = self._sums.get(key)
        if known is not None:
            known.add(entry)
            return
        made = self._sums[key] = _Sum(now + SUM_S)
        if not self._write(entry, now):
            made.add(entry)

    def tick(self, now: float) -> None:
        """Write the sums that are due, as far as there is room."""
        while self._sums and (key := next(iter(self._sums))) and (due := self._sums[key]).due <= now:
            del self._sums[key]
            if due.entry is None:
                continue
            again = self._sums[key] = _Sum(now + SUM_S)  # more of these may follow at once
            if not self._write(due.entry, now):
                again.entry = due.entry

    def next_deadline(self) -> float | None:
        """When `tick` is due next."""
        return next(iter(self._sums.values())).due if self._sums else None

    def take_entries(self) -> list[AuditEntry]:
        """The entries to write, in order."""
        entries, self.entries = self.entries, []
        return entries

    def flush(self) -> None:
        """The node stops: write all sums, at most `KEYS_MAX`."""
        self.entries += [one.entry for one in self._sums.values() if one.entry is not None]
        self._sums.clear()

    def _write(self, entry: AuditEntry, now: float) -> bool:
        """Whether there was room."""
        if entry.kind not in ALWAYS:
            size = len(write_entry(entry)) + ENTRY_BYTES
            if not self._room.has_room(now, size):
                return False
            self._room.take(size, now)
        self.entries.append(entry if entry.count > 1 else replace(entry, since_us=0))
        return True


def _key(entry: AuditEntry) -> Key:
    return (
        entry.kind,
        entry.action,
        entry.who,
        entry.door,
        entry.address,
        entry.code,
        *_texts(entry.details),
    )


def _texts(details: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(text for item in sorted(details.items()) for text in item)
