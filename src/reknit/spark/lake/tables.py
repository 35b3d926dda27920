"""The tables of a lake: their columns, what each is for, and where its files lie.

A lake is a folder. `LAKE/<table>/day=…/topic_key=…/*.parquet` holds the rows, `LAKE/_log/<stage>/*.json` says which
of those files count (see `tables_log`). Nothing here needs Spark, so that an archive can be read without it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import md5
from typing import Final

__all__ = ["FORMAT", "TABLES", "TABLE_OF", "Column", "Table", "topic_key"]

FORMAT: Final = 1
"""The version of layout and columns. A lake of another version is refused, never guessed at."""

SLUG_CHARS_MAX: Final = 48
_PLAIN = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `type` is Spark's name for it."""

    name: str
    type: str
    doc: str


@dataclass(frozen=True, slots=True)
class Table:
    """One table, written by one stage."""

    name: str
    stage: str
    doc: str
    columns: tuple[Column, ...]
    is_state: bool = False
    """A stage's memory: only what its newest commit wrote counts."""
    time: str = "time"
    """The column whose day says in which folder a row lies; empty where the table is not split."""

    @property
    def ddl(self) -> str:
        """The columns as Spark reads a schema.

        >>> TABLE_OF["redrives"].ddl.split(", ")[0]
        'run bigint'
        """
        return ", ".join(f"{column.name} {column.type}" for column in self.columns)

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]


def topic_key(topic: str) -> str:
    """A topic as the name of a folder: readable, short, and safe on every file system.

    >>> topic_key("plant/line 1/temp")
    'plant_line_1_temp-c386aea51bf9'
    """
    slug = _PLAIN.sub("_", topic)[:SLUG_CHARS_MAX]
    return f"{slug}-{md5(topic.encode(), usedforsecurity=False).hexdigest()[:12]}"


def _columns(text: str) -> tuple[Column, ...]:
    """Columns from lines of `name | type | what it is`."""
    rows = (line.split("|") for line in text.splitlines() if line)
    return tuple(Column(*(cell.strip() for cell in row)) for row in rows)


_STREAM = """
topic    | string    | what the events were published on
source   | binary    | the publisher's id, 16 bytes
"""
_BATCH = """
node     | string    | whose journal it was read from
position | bigint    | where in that journal
topic    | string    | what the events were published on
source   | binary    | the publisher's id, 16 bytes
first    | bigint    | the first event's seq
stop     | bigint    | the seq after the last
count    | int       | how many events; 0 for a note that retention was passed over
time     | timestamp | when it was published
ttl_ms   | int       | how long it was worth delivering; 0 is for ever
priority | int       | 0 to 6
type     | int       | 1 publish, 2 request, 3 response, 4 notification
length   | int       | bytes of the frame
data     | binary    | the frame as it was published, payloads and all
columns_bytes | int  | bytes of what differs from event to event (headers, fingerprints); 0: nothing
"""
_PIECE = """
start    | bigint    | the first seq
stop     | bigint    | the seq after the last
first    | bigint    | the first seq of the batch that holds them
node     | string    | that batch's journal
position | bigint    | that batch's place in it
origin   | string    | `batches` or `recovered`: the table with that batch
time     | timestamp | when it was published
columns_bytes | int  | as in `batches`
skip     | array<bigint> | seqs in it that repeat another event's fingerprint
"""

TABLES: Final = (
    Table("batches", "capture_batches", "Every batch of every journal, as it was read.", _columns(_BATCH)),
    Table(
        "outcomes",
        "capture_outcomes",
        "How events ended for durable subscribers, and when those came and went.",
        _columns("""
node     | string    | whose journal it was read from
position | bigint    | where in that journal
row      | int       | counts within the record at that position
kind     | string    | outcomes, opened, closed, skipped (never came to this node) or gone
subscriber | string  | its name
topic    | string    | null where the row is about the subscriber alone
source   | binary    | the publisher's id
start    | bigint    | the first seq that ended, or was skipped
stop     | bigint    | the seq after the last
end      | string    | ACCEPTED, DEAD_LETTERED or LOST
code     | int       | google.rpc
reason   | string    | of the closed set; empty where accepted
text     | string    | for people
attempts | int       | hand-overs until then
time     | timestamp | when it ended
pattern  | string    | what an opened subscriber wants
since    | bigint    | the first seq of this stream that an opened subscriber is owed
floor    | bigint    | the position before which nothing is owed
"""),
    ),
    Table(
        "settled",
        "settle",
        "Each event once and in order per source: ranges, and the batches that hold them.",
        _columns(_STREAM + _PIECE),
    ),
    Table(
        "recovered",
        "settle",
        "Batches that filled gaps, from another node or the archive.",
        _columns(_BATCH),
    ),
    Table(
        "losses",
        "settle",
        "Events that were numbered and that nobody has: ranges.",
        _columns(
            _STREAM
            + """
start    | bigint    | the first missing seq
stop     | bigint    | the seq after the last
reason   | string    | missing: a hole; beginning: before the first that was ever captured
noticed  | timestamp | when the gap was first seen
time     | timestamp | when it was given up
"""
        ),
    ),
    Table(
        "late",
        "settle",
        "Events that came after they had been given up, never thrown away.",
        _columns(_STREAM + _PIECE + "arrived | timestamp | when they came"),
    ),
    Table(
        "duplicates",
        "settle",
        "Events with another id and the fingerprint of an earlier one.",
        _columns(
            _STREAM
            + """
seq      | bigint    | the repeated event's
fingerprint | string | what both have in common
first_source | binary | the earlier event's source
first_seq | bigint   | the earlier event's seq
time     | timestamp | when the repeated one was published
"""
        ),
    ),
    Table(
        "coverage",
        "settle",
        "How far every stream is decided: a row a stream.",
        _columns(
            _STREAM
            + """
next     | bigint    | everything before it is settled or lost
lost     | array<struct<start:bigint,stop:bigint>> | what of it is lost
"""
        ),
        is_state=True,
        time="",
    ),
    Table(
        "held",
        "settle",
        "Ranges behind a gap that may still be filled.",
        _columns(_STREAM + _PIECE + "noticed | timestamp | when it was captured"),
        is_state=True,
        time="",
    ),
    Table(
        "fingerprints",
        "settle",
        "Fingerprints of the grace period.",
        _columns(
            _STREAM
            + """
seq      | bigint    | the event's
fingerprint | string | its content's hash, from the batch's column of that name
time     | timestamp | when it was published
"""
        ),
        is_state=True,
        time="",
    ),
    Table(
        "events",
        "events",
        "A row an event, for every tool that reads Parquet.",
        _columns(
            _STREAM
            + """
seq      | bigint    | with source, the event's id
time     | timestamp | when it was published
ttl_ms   | int       | how long it was worth delivering; 0 is for ever
priority | int       | 0 to 6
type     | int       | 1 publish, 2 request, 3 response, 4 notification
payload  | binary    | as it was published
headers  | map<string,string> | the publisher's
"""
        ),
    ),
    Table(
        "dead_letters",
        "dead_letters",
        "Events that ended undelivered, with their payloads.",
        _columns(
            _STREAM
            + """
seq      | bigint    | with source, the event's id
time     | timestamp | when it was published
payload  | binary    | as it was published
subscriber | string  | who did not get it
code     | int       | google.rpc
reason   | string    | of the closed set
text     | string    | for people
attempts | int       | hand-overs
node     | string    | where it ended
died     | timestamp | when it ended
letter_source | binary | with letter_seq, the dead letter's own id
letter_seq | bigint  | its seq on the dead-letter topic
"""
        ),
        time="died",
    ),
    Table(
        "redrives",
        "redrive",
        "Which dead letters were published again, and as what.",
        _columns("""
run      | bigint    | which redrive
letter_source | binary | the dead letter's id
letter_seq | bigint  | the dead letter's id
topic    | string    | where it was published again
source   | binary    | the new event's source; its header `redriven` names the original
time     | timestamp | when the redrive was decided
"""),
        time="",
    ),
)

TABLE_OF: Final = {table.name: table for table in TABLES}
