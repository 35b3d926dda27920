"""The tables of a lake: their columns, what each is for, and where its files lie.

A lake is a folder, and each table a Delta table in it: `LAKE/<table>/day=…/topic_key=…/*.parquet` holds the rows,
`LAKE/<table>/_delta_log` says which of those files count. Nothing here needs Spark, so that an archive can be read
without it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import md5
from typing import Final

__all__ = ["FORMAT", "MANY_TOPICS", "RUNS", "TABLES", "TABLE_OF", "Column", "Table", "topic_key"]

FORMAT: Final = 2
"""The version of layout and columns. A lake of another version is refused."""

SLUG_CHARS_MAX: Final = 48
MANY_TOPICS: Final = "many"
"""Instead of a topic's key: the folder for files with many topics, sorted by topic."""
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
    """A stage's state: only the rows of its newest commit count."""
    time: str = "time"
    """The column whose day gives a row's folder; empty if the table is not split."""

    @property
    def ddl(self) -> str:
        """The columns as a schema for Spark.

        >>> TABLE_OF["redrives"].ddl.split(", ")[0]
        'run bigint'
        """
        return ", ".join(f"{column.name} {column.type}" for column in self.columns)

    @property
    def partitions(self) -> tuple[str, ...]:
        """The columns that the folders of its files stand for."""
        if not self.stage:  # every stage writes it
            return ("stage",)
        return ("day", "topic_key") if self.time else ()

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
    """Columns from lines of `name | type | description`."""
    rows = (line.split("|") for line in text.splitlines() if line)
    return tuple(Column(*(cell.strip() for cell in row)) for row in rows)


_SERIES = """
topic    | string    | the topic that the events were published on
source   | binary    | the publisher's id, 16 bytes
"""
_BATCH = """
node     | string    | the node whose journal it was read from
position | bigint    | its position there
topic    | string    | the topic that the events were published on
source   | binary    | the publisher's id, 16 bytes
first    | bigint    | the first event's seq
stop     | bigint    | the seq after the last
count    | int       | number of events; 0 in a row that reports events removed by retention
time     | timestamp | when it was published
ttl_ms   | int       | time to live; 0 means for ever
priority | int       | 0 to 6
type     | int       | 1 publish, 2 request, 3 response, 4 notification
length   | int       | bytes of the frame
data     | binary    | the whole frame as it was published, with the payloads
columns_bytes | int  | bytes of the values that differ between events (headers, fingerprints); 0 if there are none
"""
_PIECE = """
start    | bigint    | the first seq
stop     | bigint    | the seq after the last
first    | bigint    | the first seq of the batch that holds them
node     | string    | the node with that batch
position | bigint    | that batch's position there
origin   | string    | `batches` or `recovered`: the table with that batch
time     | timestamp | when it was published
columns_bytes | int  | as in `batches`
skip     | array<bigint> | seqs in the range that repeat the fingerprint of another event
"""

TABLES: Final = (
    Table("batches", "capture_batches", "Every batch of every journal, as it was read.", _columns(_BATCH)),
    Table(
        "outcomes",
        "capture_outcomes",
        "How events ended for durable subscribers, and when those were opened and closed.",
        _columns("""
node     | string    | the node whose journal it was read from
position | bigint    | its position there
row      | int       | number of the row within the record at that position
kind     | string    | outcomes, opened, closed, skipped (never reached this node) or gone
subscriber | string  | the subscriber's name
topic    | string    | null if the row is about the subscriber alone
source   | binary    | the publisher's id
start    | bigint    | the first seq that ended or was skipped
stop     | bigint    | the seq after the last
end      | string    | ACCEPTED, DEAD_LETTERED or LOST
code     | int       | the google.rpc code
reason   | string    | one of the defined reasons; empty if accepted
text     | string    | an explanation for people
attempts | int       | number of attempts until then
time     | timestamp | when it ended
pattern  | string    | the pattern of an opened subscriber
since    | bigint    | the first seq of this series that an opened subscriber is owed
floor    | bigint    | nothing before this position is owed any more
"""),
    ),
    Table(
        "settled",
        "settle",
        "Each event once and in order per source: ranges, and the batches that hold them.",
        _columns(_SERIES + _PIECE),
    ),
    Table(
        "recovered",
        "settle",
        "Batches that filled gaps, from another node or an archive.",
        _columns(_BATCH),
    ),
    Table(
        "losses",
        "settle",
        "Ranges of events that have seqs but are in no journal and no archive.",
        _columns(
            _SERIES
            + """
start    | bigint    | the first missing seq
stop     | bigint    | the seq after the last
reason   | string    | missing: a gap; beginning: before the first event that was ever captured
noticed  | timestamp | when the gap was first seen
time     | timestamp | when it was given up
"""
        ),
    ),
    Table(
        "late",
        "settle",
        "Events that arrived after they had been given up; they are stored here.",
        _columns(_SERIES + _PIECE + "arrived | timestamp | when they were captured"),
    ),
    Table(
        "duplicates",
        "settle",
        "Events with a new id but the fingerprint of an earlier event.",
        _columns(
            _SERIES
            + """
seq      | bigint    | the seq of the repeated event
fingerprint | string | the fingerprint of both events
first_source | binary | the source of the earlier event
first_seq | bigint   | the seq of the earlier event
time     | timestamp | when the repeated event was published
"""
        ),
    ),
    Table(
        "coverage",
        "settle",
        "How far each series is decided: one row per series.",
        _columns(
            _SERIES
            + """
next     | bigint    | all events before this seq are settled or lost
lost     | array<struct<start:bigint,stop:bigint>> | the lost ranges among them
"""
        ),
        is_state=True,
        time="",
    ),
    Table(
        "held",
        "settle",
        "Ranges after a gap that may still be filled.",
        _columns(
            _SERIES
            + _PIECE
            + """
captured | bigint    | the commit of capture that it came with; null if that is not known
noticed  | timestamp | when it was captured
"""
        ),
        is_state=True,
        time="",
    ),
    Table(
        "fingerprints",
        "settle",
        "Fingerprints of the last ten minutes of each topic.",
        _columns(
            _SERIES
            + """
seq      | bigint    | the seq of the event
fingerprint | string | the hash of its content, from the batch's column of that name
time     | timestamp | when it was published
"""
        ),
        is_state=True,
        time="",
    ),
    Table(
        "events",
        "events",
        "One row per event, for any tool that reads Parquet.",
        _columns(
            _SERIES
            + """
seq      | bigint    | with source, the event's id
time     | timestamp | when it was published
ttl_ms   | int       | time to live; 0 means for ever
priority | int       | 0 to 6
type     | int       | 1 publish, 2 request, 3 response, 4 notification
payload  | binary    | the payload as it was published
headers  | map<string,string> | the publisher's headers
"""
        ),
    ),
    Table(
        "dead_letters",
        "dead_letters",
        "Events that ended undelivered, with their payloads.",
        _columns(
            _SERIES
            + """
seq      | bigint    | with source, the event's id
time     | timestamp | when it was published
payload  | binary    | the payload as it was published
subscriber | string  | the subscriber that did not get it
code     | int       | the google.rpc code
reason   | string    | one of the defined reasons
text     | string    | an explanation for people
attempts | int       | number of attempts
node     | string    | the node where it ended
died     | timestamp | when it ended
letter_source | binary | with letter_seq, the id of the dead letter itself
letter_seq | bigint  | the dead letter's seq on the dead-letter topic
has_payload | boolean | false if the node left the payload out, or did not have it any more
ttl_ms   | int       | the event's time to live; 0 means for ever
priority | int       | 0 to 6
type     | int       | 1 publish, 2 request, 3 response, 4 notification
flags    | int       | the flags of its batch
headers  | map<string,string> | the publisher's headers
fields   | binary    | everything else that it carried, in MsgPack: a redrive publishes it again
redriven | int       | how often the event had been redriven before
original | string    | its id before the first redrive; empty if there was none
"""
        ),
        time="died",
    ),
    Table(
        "redrives",
        "redrive",
        "Which dead letters were published again, and with which source.",
        _columns("""
run      | bigint    | the number of the redrive
letter_source | binary | the dead letter's id
letter_seq | bigint  | the dead letter's id
topic    | string    | the topic on which it was published again
source   | binary    | the new event's source; its header `redriven` names the original
time     | timestamp | when the redrive was planned
"""),
        time="",
    ),
    Table(
        "accepted_losses",
        "accept",
        "Losses that somebody has accepted: an audit does not fail because of them.",
        _columns(
            _SERIES
            + """
start    | bigint    | the first seq
stop     | bigint    | the seq after the last
time     | timestamp | when they were accepted
"""
        ),
        time="",
    ),
)

RUNS: Final = Table(
    "runs",
    "",
    "The commits of all stages. Each was recorded here before any table changed.",
    _columns("""
run      | bigint    | the number of the commit within its stage
time     | timestamp | when it was made
rows     | bigint    | the rows that it adds to all tables
files    | string    | the files that it adds, in JSON
meta     | string    | what the stage notes about it, in JSON
"""),
    time="",
)

TABLE_OF: Final = {table.name: table for table in TABLES}
