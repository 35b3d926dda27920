"""A tunnel that is behind reads the journal in parts, which tunnels at the same place share."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from reknit.batch import Batch
from reknit.gateway.http.replay import JournalReplay
from reknit.protocol.tunnel.journal_place import JournalPlace
from reknit.store.memory import MemoryJournal


def _group() -> Any:
    scope = SimpleNamespace(locations=lambda topic, position: [""])
    format = SimpleNamespace(batch=lambda item: b"".join(item.batch.payloads()), pack=bytes)
    return SimpleNamespace(key="a", scope=scope, format=format)


def test_a_place_where_nothing_was_yet_is_read_again_when_something_is() -> None:
    journal = MemoryJournal()
    replay = JournalReplay(journal, "epoch", lambda entry, group: [], lambda position, lost: None)
    edge = JournalPlace("epoch", journal.end)
    assert replay.next(_group(), edge, journal.end) == (b"", 0, edge)
    batch = Batch.build(b"s" * 16, "plant/temp", 1, [b"21.5"], time_us=1)
    journal.stage(batch.data, [batch.head])
    end = journal.commit()
    assert replay.next(_group(), edge, end) == (b"21.5", 4, JournalPlace("epoch", end))
