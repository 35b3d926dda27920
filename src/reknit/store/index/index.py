"""The index of the log, in LMDB: where each series' events are, and the ledger, as of one position.

    meta        "state" → IndexState (the position that a replay of the log starts from)
    streams     series number → topic, source, what is known of the series, its published ranges
    extents     series number · first · position → stop, end           find by seq
    places      position → series number · first · stop · end          what a part of the log holds
    segments    start → totals of a file of the log
    marks       time in µs → position
    accounts    account number → name, pattern, since, floor
    ends        account number · series number → {final outcome: ranges}
    tallies     account number · series number · seq → attempts at an event that has not ended
    letters     source of dead letters → which were redriven, which dropped

Numbers in keys are big endian, so that they sort. Every row ends with a checksum, and every transaction is synced. The
log is the truth: the index can be rebuilt from it, except for the part of the ledger that comes from removed segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import lmdb
import msgspec

from reknit.errors import JournalError
from reknit.ledger import Account, Ledger
from reknit.store.index.lmdb_environment import MAP_BYTES, Environment, explained
from reknit.store.index.rows import (
    ADDED,
    DATABASES,
    EXTENT,
    EXTENT_KEY,
    FORMAT,
    NUMBER,
    PAIR,
    PLACE,
    SEGMENT,
    UNSEALED_FORMAT,
    IndexState,
    LoadedIndex,
    Snapshot,
    decode_account,
    decode_letters,
    decode_outcomes,
    decode_series,
    decode_state,
    decode_tally,
    encode,
    load_letters,
    load_outcomes,
    seal,
    unpack_key,
    unseal,
)
from reknit.store.index.series import Extent, SeriesExtents, SeriesTable
from reknit.store.log.retention import Segment


class Index:
    """Written by one thread at a time, read by any thread."""

    def __init__(self, directory: Path, readonly: bool = False, map_bytes: int = MAP_BYTES) -> None:
        self.directory = directory
        self._environment = Environment.join(directory, readonly, map_bytes)
        env = self._environment.lmdb
        try:
            self._dbs = {name: env.open_db(name.encode(), create=not readonly) for name in DATABASES}
            for name in ADDED:
                with suppress(lmdb.NotFoundError):
                    self._dbs[name] = env.open_db(name.encode(), create=not readonly)
            self._is_sealed = self._check_sealed()
            if not self._is_sealed and not readonly:
                self._environment.write(self._seal_all)
                self._is_sealed = True
        except lmdb.Error as error:
            self._environment.leave()
            raise explained(error, directory) from error
        except BaseException:
            self._environment.leave()
            raise

    def copy_to(self, directory: Path) -> None:
        """Write a copy as of one moment into an empty directory, also while a node writes the index."""
        try:
            with self._environment.reading() as txn:
                self._environment.lmdb.copy(str(directory), compact=True, txn=txn)
        except lmdb.Error as error:
            raise explained(error, directory) from error

    def _check_sealed(self) -> bool:
        """Whether the rows have checksums. Raises `RowDamaged`."""
        with self._environment.reading() as txn:
            data = txn.get(b"state", db=self._dbs["meta"])
        if data is None:
            return True
        with suppress(msgspec.DecodeError, msgspec.ValidationError):
            if decode_state(data).format == UNSEALED_FORMAT:
                return False
        unseal("meta", b"state", data)
        return True

    def _seal_all(self, txn: Any) -> None:
        """Give every row of an older index its checksum."""
        for name in self._dbs:
            for key, row in list(txn.cursor(db=self._dbs[name])):
                self._put_row(txn, name, key, row)
        state = decode_state(unseal("meta", b"state", txn.get(b"state", db=self._dbs["meta"])))
        self._put_state(txn, msgspec.structs.replace(state, format=FORMAT))

    def check(self) -> None:
        """Read every row. Raises `RowDamaged`."""
        with self._environment.reading() as txn:
            for name in self._dbs:
                for _ in self._rows(txn, name):
                    pass

    # -- rows and their checksums

    def _put_row(self, txn: Any, database: str, key: bytes, row: bytes, overwrite: bool = True) -> None:
        txn.put(key, seal(database, key, row), overwrite=overwrite, db=self._dbs[database])

    def _put_state(self, txn: Any, state: IndexState) -> None:
        self._put_row(txn, "meta", b"state", encode(state))

    def _row(self, database: str, key: bytes, data: bytes) -> bytes:
        return unseal(database, key, data) if self._is_sealed else data

    def _get_row(self, txn: Any, database: str, key: bytes) -> bytes | None:
        data = txn.get(key, db=self._dbs[database])
        return None if data is None else self._row(database, key, data)

    def _rows(self, txn: Any, database: str) -> Iterator[tuple[bytes, bytes]]:
        """All rows of a database, which may be missing."""
        if (db := self._dbs.get(database)) is not None:
            for key, data in txn.cursor(db=db):
                yield key, self._row(database, key, data)

    def close(self) -> None:
        self._environment.leave()

    # -- writing

    def save(self, snapshot: Snapshot) -> None:
        """Write a snapshot; all of it or nothing."""
        self._environment.write(lambda txn: self._put(txn, snapshot))

    def rebuild(self, snapshot: Snapshot) -> None:
        """Write a snapshot, and drop every other extent, place and segment."""
        self._environment.write(lambda txn: self._rebuild(txn, snapshot))

    def _rebuild(self, txn: Any, snapshot: Snapshot) -> None:
        for name in ("extents", "places", "segments"):
            txn.drop(self._dbs[name], delete=False)
        self._put(txn, snapshot)

    def _put(self, txn: Any, snapshot: Snapshot) -> None:
        self._put_extents(txn, snapshot.extents)
        for key, row in snapshot.segments:
            self._put_row(txn, "segments", key, row)
        for time_us, position in snapshot.marks:
            self._put_row(txn, "marks", NUMBER.pack(time_us), NUMBER.pack(position), overwrite=False)
        for number, series in snapshot.series.items():
            self._put_row(txn, "streams", NUMBER.pack(number), encode(series))
        for number, account in snapshot.accounts.items():
            self._put_or_delete(txn, "accounts", NUMBER.pack(number), account)
        for numbers, ends in snapshot.ends.items():
            self._put_or_delete(txn, "ends", PAIR.pack(*numbers), ends)
        for place, tally in snapshot.tallies.items():
            self._put_or_delete(txn, "tallies", EXTENT_KEY.pack(*place), tally)
        for source, letters in snapshot.letters.items():
            self._put_row(txn, "letters", source, encode(letters))
        known = (snapshot.to, snapshot.start, snapshot.paused, snapshot.offset_us, list(snapshot.lost))
        self._put_state(txn, IndexState(FORMAT, *known))

    def _put_or_delete(self, txn: Any, database: str, key: bytes, row: object) -> None:
        if row is None:
            txn.delete(key, db=self._dbs[database])
        else:
            self._put_row(txn, database, key, encode(row))

    def _put_extents(self, txn: Any, extents: Sequence[Extent]) -> None:
        rows = [(e.series.number, e.first, e.position, e.stop, e.end) for e in extents]
        pack_key, pack, pack_place, pack_position = EXTENT_KEY.pack, EXTENT.pack, PLACE.pack, NUMBER.pack
        keyed = sorted([(pack_key(n, first, at), pack(stop, end)) for n, first, at, stop, end in rows])
        keyed = [(key, seal("extents", key, row)) for key, row in keyed]
        places = [(pack_position(at), pack_place(n, first, stop, end)) for n, first, at, stop, end in rows]
        places = [(key, seal("places", key, row)) for key, row in places]
        with txn.cursor(db=self._dbs["extents"]) as cursor:
            cursor.putmulti(keyed)
        with txn.cursor(db=self._dbs["places"]) as cursor:
            cursor.putmulti(places)

    def remove(
        self, low: int, high: int, start: int, table: SeriesTable, moved_to: int | None = None
    ) -> None:
        """Forget the log from position `low` to `high`, which is gone; the log begins at `start`.

        `moved_to` is the new start of a replay, for when the end of the log is gone.
        """
        self._environment.write(lambda txn: self._remove(txn, low, high, start, table, moved_to))

    def _remove(
        self, txn: Any, low: int, high: int, start: int, table: SeriesTable, moved_to: int | None
    ) -> None:
        touched: set[int] = set()
        with txn.cursor(db=self._dbs["places"]) as cursor, txn.cursor(db=self._dbs["extents"]) as by_seq:
            cursor.set_range(NUMBER.pack(low))
            while (key := cursor.key()) and key < NUMBER.pack(high):
                touched.add(_delete_extent(by_seq, key, self._row("places", key, cursor.value())))
                cursor.delete()
        with txn.cursor(db=self._dbs["segments"]) as cursor:
            cursor.set_range(NUMBER.pack(low))
            _delete_while(cursor, lambda key, _: key < NUMBER.pack(high))
        if low < start:
            self._remove_marks(txn, start)
        for number in touched:
            self._put_first_held(txn, table.numbered(number))
        state = self._state(txn)
        assert state is not None, "only saved parts are removed"
        indexed_to = state.indexed_to if moved_to is None else moved_to
        self._put_state(txn, msgspec.structs.replace(state, start=start, indexed_to=indexed_to))

    def _put_first_held(self, txn: Any, series: SeriesExtents) -> None:
        """Nothing else: the published events in memory are ahead of the log, and must not be saved yet."""
        key = NUMBER.pack(series.number)
        data = self._get_row(txn, "streams", key)
        assert data is not None, "a series whose events are removed was saved"
        row = msgspec.structs.replace(decode_series(data), first_held=series.first_held)
        self._put_row(txn, "streams", key, encode(row))

    def _remove_marks(self, txn: Any, start: int) -> None:
        with txn.cursor(db=self._dbs["marks"]) as cursor:
            cursor.first()
            _delete_while(cursor, lambda key, row: NUMBER.unpack(self._row("marks", key, row))[0] < start)

    # -- reading

    def state(self) -> IndexState | None:
        """Which part of the log the index covers; None while it is empty."""
        with self._environment.reading() as txn:
            return self._state(txn)

    def _state(self, txn: Any) -> IndexState | None:
        data = self._get_row(txn, "meta", b"state")
        if data is None:
            return None
        state = decode_state(data)
        if state.format not in (FORMAT, UNSEALED_FORMAT):
            what = f"the index has format {state.format}, and this version of reknit reads format {FORMAT}"
            raise JournalError(what, str(self.directory))
        return state

    def load(self, table: SeriesTable, ledger: Ledger) -> LoadedIndex:
        """Fill series and ledger, all as of one moment."""
        with self._environment.reading() as txn:
            by_number = {
                (number := NUMBER.unpack(key)[0]): decode_series(data).load(number, table, ledger)
                for key, data in self._rows(txn, "streams")
            }
            accounts = {
                NUMBER.unpack(key)[0]: decode_account(data).load(ledger)
                for key, data in self._rows(txn, "accounts")
            }
            self._load_outcomes(txn, accounts, by_number)
            for key, data in self._rows(txn, "letters"):
                ledger.letters[key] = load_letters(decode_letters(data))
            ledger.restored()
            numbers = {account.name: number for number, account in accounts.items()}
            return LoadedIndex(self._state(txn), self._segments(txn), numbers)

    def _load_outcomes(
        self, txn: Any, accounts: dict[int, Account], by_number: dict[int, SeriesExtents]
    ) -> None:
        for key, data in self._rows(txn, "ends"):
            number, series_number = PAIR.unpack(key)
            series = by_number[series_number]
            accounts[number].ends[series.topic, series.source] = load_outcomes(decode_outcomes(data))
        for key, data in self._rows(txn, "tallies"):
            number, series_number, seq = EXTENT_KEY.unpack(key)
            series = by_number[series_number]
            by_seq = accounts[number].tallies.setdefault((series.topic, series.source), {})
            by_seq[seq] = decode_tally(data)

    def segments(self) -> list[Segment]:
        """The totals of the log's files."""
        with self._environment.reading() as txn:
            return self._segments(txn)

    def _segments(self, txn: Any) -> list[Segment]:
        return [
            Segment(NUMBER.unpack(key)[0], *SEGMENT.unpack(row)) for key, row in self._rows(txn, "segments")
        ]

    def extents(self, series: SeriesExtents, start: int, stop: int) -> list[Extent]:
        """The extents that hold any of `[start, stop)`.

        No extent is longer than `span_max`, which limits how far back to search.
        """
        low = EXTENT_KEY.pack(series.number, max(0, start - series.span_max), 0)
        found: list[Extent] = []
        with self._environment.reading() as txn, txn.cursor(db=self._dbs["extents"]) as cursor:
            there = cursor.set_range(low)
            while there:
                key = cursor.key()
                number, first, position = unpack_key(EXTENT_KEY, "extents", key)
                if number != series.number or first >= stop:
                    break
                extent_stop, end = EXTENT.unpack(self._row("extents", key, cursor.value()))
                if extent_stop > start:
                    found.append(Extent(series, first, extent_stop, position, end))
                there = cursor.next()
        return found

    def places(self, low: int, high: int) -> list[tuple[int, int, int, int, int]]:
        """(position, series number, first, stop, end) of every extent in `[low, high)` of the log."""
        found: list[tuple[int, int, int, int, int]] = []
        with self._environment.reading() as txn, txn.cursor(db=self._dbs["places"]) as cursor:
            there = cursor.set_range(NUMBER.pack(low))
            while there and (position := unpack_key(NUMBER, "places", key := cursor.key())[0]) < high:
                found.append((position, *PLACE.unpack(self._row("places", key, cursor.value()))))
                there = cursor.next()
        return found

    def held(self, table: SeriesTable, low: int, high: int) -> list[Extent]:
        """The extents that lie in `[low, high)` of the log."""
        return [
            Extent(table.numbered(number), first, stop, position, end)
            for position, number, first, stop, end in self.places(low, high)
        ]

    def place_before(self, position: int) -> int | None:
        """The last known start of a batch at or before a position."""
        with self._environment.reading() as txn, txn.cursor(db=self._dbs["places"]) as cursor:
            there = cursor.set_range(NUMBER.pack(position))
            if there and cursor.key() == NUMBER.pack(position):
                return position
            there = cursor.prev() if there else cursor.last()
            return unpack_key(NUMBER, "places", cursor.key())[0] if there else None

    def place_after(self, position: int) -> int | None:
        """The first known start of a batch after a position."""
        with self._environment.reading() as txn, txn.cursor(db=self._dbs["places"]) as cursor:
            there = cursor.set_range(NUMBER.pack(position + 1))
            return unpack_key(NUMBER, "places", cursor.key())[0] if there else None

    def last_mark_us(self) -> int:
        """The time of the last mark, or 0."""
        with self._environment.reading() as txn, txn.cursor(db=self._dbs["marks"]) as cursor:
            return unpack_key(NUMBER, "marks", cursor.key())[0] if cursor.last() else 0

    def mark_before(self, time_us: int) -> int:
        """The position of the last mark at or before a time, or 0."""
        with self._environment.reading() as txn, txn.cursor(db=self._dbs["marks"]) as cursor:
            there = cursor.set_range(NUMBER.pack(time_us + 1))
            there = cursor.prev() if there else cursor.last()
            return NUMBER.unpack(self._row("marks", cursor.key(), cursor.value()))[0] if there else 0


def _delete_while(cursor: Any, goes: Callable[[bytes, bytes], bool]) -> None:
    """Delete rows from the cursor on while `goes` is true. Past the last row, a cursor's key is empty."""
    while (key := cursor.key()) and goes(key, cursor.value()):
        cursor.delete()


def _delete_extent(cursor: Any, key: bytes, place: bytes) -> int:
    """Delete the extent that is in this place; returns its series' number."""
    number: int
    number, first, _, _ = PLACE.unpack(place)
    if cursor.set_key(EXTENT_KEY.pack(number, first, NUMBER.unpack(key)[0])):
        cursor.delete()
    return number
