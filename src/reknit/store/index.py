"""The index of the log, in LMDB: where streams' events are, and the ledger, as of one position.

    meta        "state" → State (what the log had to be replayed from)
    streams     stream number → topic, source, what is known of it, its published ranges
    extents     stream number · first · position → stop, end           find by seq
    places      position → stream number · first · stop · end          what a part of the log holds
    segments    start → totals of a file of the log
    marks       time in µs → position
    accounts    account number → name, pattern, since, floor
    ends        account number · stream number → {end: ranges}
    tallies     account number · stream number · seq → attempts at an event that has not ended
    letters     source of dead letters → which were redriven, which dropped

Numbers in keys are big endian, so that they sort. Every transaction is synced. The log is the truth: all of
this but the ledger's part from removed segments can be built again from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import lmdb
import msgspec

from reknit.errors import JournalError
from reknit.ledger import Ledger
from reknit.store.lmdb_environment import MAP_BYTES, Environment, explained
from reknit.store.retention import Segment
from reknit.store.rows import (
    EXTENT,
    EXTENT_KEY,
    FORMAT,
    NUMBER,
    PAIR,
    PLACE,
    SEGMENT,
    Loaded,
    Snapshot,
    State,
    decode_account,
    decode_ends,
    decode_letters,
    decode_state,
    decode_stream,
    decode_tally,
    encode,
    load_ends,
    load_letters,
)
from reknit.store.series import Extent, Stream, Streams

_DATABASES: Final = ("meta", "streams", "extents", "places", "segments", "marks", "accounts", "ends")
_ADDED: Final = ("tallies", "letters")
"""An index from before there were these is read without them, and gets them when it is written."""


class Index:
    """Written by one thread at a time, read by any."""

    def __init__(self, directory: Path, readonly: bool = False, map_bytes: int = MAP_BYTES) -> None:
        self.directory = directory
        self._environment = Environment.join(directory, readonly, map_bytes)
        env = self._environment.lmdb
        try:
            self._dbs = {name: env.open_db(name.encode(), create=not readonly) for name in _DATABASES}
            for name in _ADDED:
                with suppress(lmdb.NotFoundError):
                    self._dbs[name] = env.open_db(name.encode(), create=not readonly)
        except lmdb.Error as error:
            self._environment.leave()
            raise explained(error, directory) from error

    def close(self) -> None:
        self._environment.leave()

    # -- writing

    def save(self, snapshot: Snapshot) -> None:
        """Write a snapshot; all of it or nothing."""
        self._environment.write(lambda txn: self._put(txn, snapshot))

    def rebuild(self, snapshot: Snapshot) -> None:
        """Write a snapshot in place of everything that is known of where things are."""
        self._environment.write(lambda txn: self._rebuild(txn, snapshot))

    def _rebuild(self, txn: Any, snapshot: Snapshot) -> None:
        for name in ("extents", "places", "segments"):
            txn.drop(self._dbs[name], delete=False)
        self._put(txn, snapshot)

    def _put(self, txn: Any, snapshot: Snapshot) -> None:
        self._put_extents(txn, snapshot.extents)
        for key, row in snapshot.segments:
            txn.put(key, row, db=self._dbs["segments"])
        for time_us, position in snapshot.marks:
            txn.put(NUMBER.pack(time_us), NUMBER.pack(position), overwrite=False, db=self._dbs["marks"])
        for number, stream in snapshot.streams.items():
            txn.put(NUMBER.pack(number), encode(stream), db=self._dbs["streams"])
        for number, account in snapshot.accounts.items():
            self._put_or_delete(txn, "accounts", NUMBER.pack(number), account)
        for numbers, ends in snapshot.ends.items():
            self._put_or_delete(txn, "ends", PAIR.pack(*numbers), ends)
        for place, tally in snapshot.tallies.items():
            self._put_or_delete(txn, "tallies", EXTENT_KEY.pack(*place), tally)
        for source, letters in snapshot.letters.items():
            txn.put(source, encode(letters), db=self._dbs["letters"])
        state = State(FORMAT, snapshot.to, snapshot.start, snapshot.paused)
        txn.put(b"state", encode(state), db=self._dbs["meta"])

    def _put_or_delete(self, txn: Any, database: str, key: bytes, row: object) -> None:
        if row is None:
            txn.delete(key, db=self._dbs[database])
        else:
            txn.put(key, encode(row), db=self._dbs[database])

    def _put_extents(self, txn: Any, extents: Sequence[Extent]) -> None:
        rows = [(e.stream.number, e.first, e.position, e.stop, e.end) for e in extents]
        pack_key, pack, pack_place, pack_position = EXTENT_KEY.pack, EXTENT.pack, PLACE.pack, NUMBER.pack
        keyed = sorted([(pack_key(n, first, at), pack(stop, end)) for n, first, at, stop, end in rows])
        places = [(pack_position(at), pack_place(n, first, stop, end)) for n, first, at, stop, end in rows]
        with txn.cursor(db=self._dbs["extents"]) as cursor:
            cursor.putmulti(keyed)
        with txn.cursor(db=self._dbs["places"]) as cursor:
            cursor.putmulti(places)

    def remove(self, low: int, high: int, start: int, streams: Streams, moved_to: int | None = None) -> None:
        """The log from position `low` to `high` is gone; it begins at `start`.

        `moved_to` sets where a replay starts, when the end of the log went.
        """
        self._environment.write(lambda txn: self._remove(txn, low, high, start, streams, moved_to))

    def _remove(
        self, txn: Any, low: int, high: int, start: int, streams: Streams, moved_to: int | None
    ) -> None:
        touched: set[int] = set()
        with txn.cursor(db=self._dbs["places"]) as cursor, txn.cursor(db=self._dbs["extents"]) as by_seq:
            cursor.set_range(NUMBER.pack(low))
            while (key := cursor.key()) and key < NUMBER.pack(high):
                touched.add(_delete_extent(by_seq, key, cursor.value()))
                cursor.delete()
        with txn.cursor(db=self._dbs["segments"]) as cursor:
            cursor.set_range(NUMBER.pack(low))
            _delete_while(cursor, lambda key, _: key < NUMBER.pack(high))
        if low < start:
            self._remove_marks(txn, start)
        for number in touched:
            self._put_first_held(txn, streams.numbered(number))
        state = self._state(txn)
        assert state is not None, "what is removed was saved"
        indexed_to = state.indexed_to if moved_to is None else moved_to
        state = msgspec.structs.replace(state, start=start, indexed_to=indexed_to)
        txn.put(b"state", encode(state), db=self._dbs["meta"])

    def _put_first_held(self, txn: Any, stream: Stream) -> None:
        """Only that: the stream's published events are ahead of the log in memory, and must not be here."""
        key = NUMBER.pack(stream.number)
        row = decode_stream(txn.get(key, db=self._dbs["streams"]))
        row = msgspec.structs.replace(row, first_held=stream.first_held)
        txn.put(key, encode(row), db=self._dbs["streams"])

    def _remove_marks(self, txn: Any, start: int) -> None:
        with txn.cursor(db=self._dbs["marks"]) as cursor:
            cursor.first()
            _delete_while(cursor, lambda _, row: NUMBER.unpack(row)[0] < start)

    # -- reading

    def state(self) -> State | None:
        """What the index is about; None while it is empty."""
        with self._environment.reading() as txn:
            return self._state(txn)

    def _state(self, txn: Any) -> State | None:
        data = txn.get(b"state", db=self._dbs["meta"])
        if data is None:
            return None
        state = decode_state(data)
        if state.format != FORMAT:
            what = f"the journal has format {state.format}, this reknit reads {FORMAT}"
            raise JournalError(what, str(self.directory))
        return state

    def load(self, streams: Streams, ledger: Ledger) -> Loaded:
        """Fill streams and ledger, all as of one moment."""
        with self._environment.reading() as txn:
            by_number = {
                (number := NUMBER.unpack(key)[0]): decode_stream(data).load(number, streams, ledger)
                for key, data in txn.cursor(db=self._dbs["streams"])
            }
            accounts = {
                NUMBER.unpack(key)[0]: decode_account(data).load(ledger)
                for key, data in txn.cursor(db=self._dbs["accounts"])
            }
            for key, data in txn.cursor(db=self._dbs["ends"]):
                number, stream_number = PAIR.unpack(key)
                stream = by_number[stream_number]
                accounts[number].ends[stream.topic, stream.source] = load_ends(decode_ends(data))
            for key, data in self._rows(txn, "tallies"):
                number, stream_number, seq = EXTENT_KEY.unpack(key)
                stream = by_number[stream_number]
                accounts[number].tallies.setdefault((stream.topic, stream.source), {})[seq] = decode_tally(
                    data
                )
            ledger.letters = {
                key: load_letters(decode_letters(data)) for key, data in self._rows(txn, "letters")
            }
            ledger.take_changes()
            numbers = {account.name: number for number, account in accounts.items()}
            return Loaded(self._state(txn), self._segments(txn), numbers)

    def _rows(self, txn: Any, database: str) -> Iterable[tuple[bytes, bytes]]:
        """All rows of a database that may be missing."""
        db = self._dbs.get(database)
        rows: Iterable[tuple[bytes, bytes]] = () if db is None else txn.cursor(db=db)
        return rows

    def segments(self) -> list[Segment]:
        """The totals of the log's files."""
        with self._environment.reading() as txn:
            return self._segments(txn)

    def _segments(self, txn: Any) -> list[Segment]:
        rows = txn.cursor(db=self._dbs["segments"])
        return [Segment(NUMBER.unpack(key)[0], *SEGMENT.unpack(row)) for key, row in rows]

    def extents(self, stream: Stream, start: int, stop: int) -> list[Extent]:
        """Those that hold any of `[start, stop)`.

        None is longer than `span_max`, so that bounds the way back.
        """
        low = EXTENT_KEY.pack(stream.number, max(0, start - stream.span_max), 0)
        found: list[Extent] = []
        with self._environment.reading() as txn, txn.cursor(db=self._dbs["extents"]) as cursor:
            there = cursor.set_range(low)
            while there:
                number, first, position = EXTENT_KEY.unpack(cursor.key())
                if number != stream.number or first >= stop:
                    break
                extent_stop, end = EXTENT.unpack(cursor.value())
                if extent_stop > start:
                    found.append(Extent(stream, first, extent_stop, position, end))
                there = cursor.next()
        return found

    def places(self, low: int, high: int) -> list[tuple[int, int, int, int, int]]:
        """(position, stream number, first, stop, end) of what lies in `[low, high)` of the log."""
        found: list[tuple[int, int, int, int, int]] = []
        with self._environment.reading() as txn, txn.cursor(db=self._dbs["places"]) as cursor:
            there = cursor.set_range(NUMBER.pack(low))
            while there and (position := NUMBER.unpack(cursor.key())[0]) < high:
                found.append((position, *PLACE.unpack(cursor.value())))
                there = cursor.next()
        return found

    def held(self, streams: Streams, low: int, high: int) -> list[Extent]:
        """The extents that lie in `[low, high)` of the log."""
        return [
            Extent(streams.numbered(number), first, stop, position, end)
            for position, number, first, stop, end in self.places(low, high)
        ]

    def place_before(self, position: int) -> int | None:
        """The last known start of a batch at or before a position."""
        with self._environment.reading() as txn, txn.cursor(db=self._dbs["places"]) as cursor:
            there = cursor.set_range(NUMBER.pack(position))
            if there and cursor.key() == NUMBER.pack(position):
                return position
            there = cursor.prev() if there else cursor.last()
            return NUMBER.unpack(cursor.key())[0] if there else None

    def mark_before(self, time_us: int) -> int:
        """The position of the last mark at or before a time, or 0."""
        with self._environment.reading() as txn, txn.cursor(db=self._dbs["marks"]) as cursor:
            there = cursor.set_range(NUMBER.pack(time_us + 1))
            there = cursor.prev() if there else cursor.last()
            return NUMBER.unpack(cursor.value())[0] if there else 0


def _delete_while(cursor: Any, goes: Callable[[bytes, bytes], bool]) -> None:
    """Delete from where the cursor is for as long as `goes` says so.

    Past the last, a cursor's key is empty.
    """
    while (key := cursor.key()) and goes(key, cursor.value()):
        cursor.delete()


def _delete_extent(cursor: Any, key: bytes, place: bytes) -> int:
    """Delete the extent that is in this place; gives its stream's number."""
    number: int
    number, first, _, _ = PLACE.unpack(place)
    if cursor.set_key(EXTENT_KEY.pack(number, first, NUMBER.unpack(key)[0])):
        cursor.delete()
    return number
