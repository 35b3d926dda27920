"""Writes the audit trail of a node: events on `reknit/audit`, from one lasting source. A part of the core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import structs
from msgspec.structs import replace

from reknit.audit import AUDIT_TOPIC, read_entry, write_entry
from reknit.batch import Batch
from reknit.config import SecuritySettings
from reknit.lineage import lasting_source
from reknit.node.core.core import Core
from reknit.node.peers.peers import Peers
from reknit.outcome import Code
from reknit.protocol.effects import Append
from reknit.protocol.machine import JOURNAL, Peer
from reknit.trust.audit import NODE, Audit
from reknit.trust.audit_trail import TEXT_CHARS_MAX, AuditTrail
from reknit.trust.rules import ANONYMOUS
from reknit.wire.messages import Ask

CHANGES: Final = frozenset(
    (
        "pause",
        "resume",
        "redrive",
        "drop_dead_letters",
        "own",
        "end_connection",
        "link_add",
        "link_remove",
        "route_add",
        "route_delete",
    )
)
"""The admin requests that change something."""
DETAILS: Final = (
    "pattern",
    "connection",
    "owner",
    "source",
    "subscriber",
    "to",
    "in",
    "out",
    "wanted",
    "clears_ttl",
)
"""The arguments that are written. Others say where a page begins, or are of no interest."""


NEWEST_MAX: Final = 500


class AuditLog:
    """Takes entries from the audit, and puts those that are to be written into the journal."""

    def __init__(
        self, node: str, *, audit: Audit, settings: SecuritySettings, core: Core, peers: Peers
    ) -> None:
        self._node = node
        self._audit = audit
        self._core = core
        self._peers = peers
        self._trail = AuditTrail(settings.audit_bytes_per_day_max)
        self.source = lasting_source(f"{node}\0{AUDIT_TOPIC}", core.journal.origin)
        self._next_seq = core.journal.sources(AUDIT_TOPIC).get(self.source, 0) + 1

    def ordered(self, ask: Ask, peer: Peer, code: Code, text: str, body: Any = None) -> None:
        """A peer gave an order: what it was, and how it ended. A dry run is not one."""
        if ask.what not in CHANGES or ask.args.get("is_dry"):
            return
        state = self._peers.get(peer)
        who, address, door = "", "", "tcp"
        if state is not None:
            who, address, door = state.identity, state.connection.peer, state.connection.door or "tcp"
        is_inside = state is not None and state.connection.is_inside
        events = int(body.get("count", 0)) if isinstance(body, Mapping) else 0
        self._audit.ordered(
            who or (NODE if is_inside else ANONYMOUS),
            ask.what,
            {name: _text(ask.args[name]) for name in DETAILS if ask.args.get(name)},
            door=door,
            address=address,
            code=code,
            text=text,
            events=events,
        )

    def newest(self, limit: int) -> list[dict[str, Any]]:
        """The newest entries that are durable, the newest first."""
        journal, stop = self._core.journal, self._next_seq
        rows: list[dict[str, Any]] = []
        for entry in journal.find(AUDIT_TOPIC, self.source, max(1, stop - min(limit, NEWEST_MAX)), stop):
            batch = Batch.parse(journal.fetch(entry))
            rows += [structs.asdict(read_entry(payload)) for payload in batch.payloads()]
        return rows[::-1][:limit]

    # -- a part of the core

    @property
    def is_due(self) -> bool:
        """Whether there is something to write."""
        return bool(self._audit.entries or self._trail.entries)

    def receive(self, message: Any, peer: Peer, now: float) -> None:
        """Of no interest here: entries come through the audit."""

    def tick(self, now: float) -> None:
        """Time passed: sums may be due."""
        self._trail.tick(now)

    def next_deadline(self) -> float | None:
        """When `tick` is due next."""
        return self._trail.next_deadline()

    def perform(self, now: float) -> None:
        """Write the entries that are due, as one batch."""
        for entry in self._audit.take():
            self._trail.note(replace(entry, node=self._node), now)
        self._write(now)

    def flush(self, now: float) -> None:
        """The node stops: write everything, also what is still summed up."""
        self.perform(now)
        self._trail.flush()
        self._write(now)

    def _write(self, now: float) -> None:
        entries = self._trail.take_entries()
        if not entries:
            return
        core, payloads = self._core, [write_entry(entry) for entry in entries]
        batch = Batch.build(self.source, AUDIT_TOPIC, self._next_seq, payloads, core.now_us())
        number = core.intake.next_number()
        core.stage(Append(number, bytes(batch.data), [batch.head], JOURNAL), now)
        core.intake.appended_here(number, {self.source: batch.stop})
        self._next_seq = batch.stop


def _text(value: Any) -> str:
    """An argument as text, not too long.

    >>> _text({"reason": "rejected", "topic": "plant/**"})
    'reason=rejected topic=plant/**'
    """
    parts = value.items() if isinstance(value, Mapping) else ()
    return (" ".join(f"{name}={part}" for name, part in parts) or str(value))[:TEXT_CHARS_MAX]
