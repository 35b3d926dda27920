"""An entry of the audit trail: who did, or tried, what on a node. Entries are events on `reknit/audit`, as JSON."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from reknit.decoding import decode_packed

__all__ = ["AUDIT_TOPIC", "AUDIT_VERSION", "AuditEntry", "AuditKind", "read_entry", "write_entry"]

AUDIT_TOPIC: Final = "reknit/audit"
AUDIT_VERSION: Final = 1
"""The version of the form. New fields may come without a new version; readers ignore fields that they don't know."""

AuditKind = Literal["login", "refusal", "order", "change"]


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened, or many alike that are summed up. It has neither secrets nor payloads.

    >>> AuditEntry(kind="login", action="login", who="ann", time_us=5).code
    'OK'
    """

    version: int = AUDIT_VERSION
    time_us: int = 0
    """When it happened; of a sum, when it happened last."""
    node: str = ""
    kind: AuditKind
    action: str
    """`login`; why something was refused; the order; or what changed."""
    who: str
    """The identity: the node itself is `node`, and somebody who has proven no name is `anonymous`."""
    door: str = ""
    """Where they came in: `tcp`, `http`, `amqp`, `zenoh`, `metrics`; empty if it is not known."""
    address: str = ""
    """The host that they came from, without the port; empty if it is not known."""
    code: str = "OK"
    """How it ended, as a google.rpc code."""
    text: str = ""
    count: int = 1
    """How often it happened."""
    since_us: int = 0
    """Of a sum: when it happened first."""
    events: int = 0
    """How many events it was about: those that were refused, redriven or dropped."""
    details: dict[str, str] = {}
    """The arguments of an order or a change."""


_decoder = msgspec.json.Decoder(AuditEntry)
_encoder = msgspec.json.Encoder()


def read_entry(payload: bytes) -> AuditEntry:
    """The entry in an event's payload. Raises `MalformedFrame` for anything else.

    >>> read_entry(write_entry(AuditEntry(kind="login", action="login", who="ann"))).who
    'ann'
    """
    return decode_packed(_decoder.decode, payload, "an audit entry")


def write_entry(entry: AuditEntry) -> bytes:
    """The payload for an entry.

    >>> write_entry(AuditEntry(kind="login", action="login", who="ann"))[:30]
    b'{"version":1,"time_us":0,"node'
    """
    return _encoder.encode(entry)
