"""reknit: every event arrives, or you are told why.

The modules in this directory are values: events, batches, topics, outcomes, the ledger, and the entries and records of a
journal. Every package imports them; they import only each other and `envelope`. Open `batch.py` first.

The names in `__all__` are loaded when they are first used, so that `reknit --help` starts at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reknit.address import Address
    from reknit.batch import Batch
    from reknit.checkpoint import Checkpoint
    from reknit.client.app import App, Reject, Retry
    from reknit.client.blocking.publisher import SyncPublisher
    from reknit.client.blocking.session import SyncSession, connect_sync
    from reknit.client.blocking.subscription import SyncSubscription
    from reknit.client.blocking.typed import SyncTypedPublisher, SyncTypedSubscription
    from reknit.client.codecs import JSON, Codec, MsgPack
    from reknit.client.group.group import Group
    from reknit.client.publish.outcomes import OutcomePublisher
    from reknit.client.publish.publisher import Publisher
    from reknit.client.publish.scheduling import ScheduledEvent
    from reknit.client.publish.typed_publisher import TypedPublisher
    from reknit.client.rpc.requests import Reply
    from reknit.client.rpc.service import Request, Service
    from reknit.client.session import Session, connect
    from reknit.client.subscribe.subscription import Subscription
    from reknit.client.subscribe.typed_subscription import TypedSubscription
    from reknit.config import Config
    from reknit.envelope.attributes import Attributes
    from reknit.errors import (
        Aborted,
        Closed,
        Full,
        Gone,
        InvalidAddress,
        InvalidAttributes,
        InvalidCheckpoint,
        InvalidConfig,
        InvalidPayload,
        InvalidTopic,
        LocalError,
        MalformedFrame,
        Modified,
        NotConnected,
        NotOpen,
        Refused,
        Rejected,
        ReknitError,
        Released,
        RemoteError,
        RequestFailed,
        TlsFailed,
        TooLarge,
        Undelivered,
        VersionMismatch,
    )
    from reknit.event import Event, TypedEvent
    from reknit.outcome import Code, Outcome
    from reknit.protocol.subscribe.subscriber import LossReport
    from reknit.version import __version__

__all__ = [
    "JSON",
    "Aborted",
    "Address",
    "App",
    "Attributes",
    "Batch",
    "Checkpoint",
    "Closed",
    "Code",
    "Codec",
    "Config",
    "Event",
    "Full",
    "Gone",
    "Group",
    "InvalidAddress",
    "InvalidAttributes",
    "InvalidCheckpoint",
    "InvalidConfig",
    "InvalidPayload",
    "InvalidTopic",
    "LocalError",
    "LossReport",
    "MalformedFrame",
    "Modified",
    "MsgPack",
    "NotConnected",
    "NotOpen",
    "Outcome",
    "OutcomePublisher",
    "Publisher",
    "Refused",
    "Reject",
    "Rejected",
    "ReknitError",
    "Released",
    "RemoteError",
    "Reply",
    "Request",
    "RequestFailed",
    "Retry",
    "ScheduledEvent",
    "Service",
    "Session",
    "Subscription",
    "SyncPublisher",
    "SyncSession",
    "SyncSubscription",
    "SyncTypedPublisher",
    "SyncTypedSubscription",
    "TlsFailed",
    "TooLarge",
    "TypedEvent",
    "TypedPublisher",
    "TypedSubscription",
    "Undelivered",
    "VersionMismatch",
    "__version__",
    "connect",
    "connect_sync",
]

_HOMES = {
    "JSON": "reknit.client.codecs",
    "Aborted": "reknit.errors",
    "Address": "reknit.address",
    "App": "reknit.client.app",
    "Attributes": "reknit.envelope.attributes",
    "Batch": "reknit.batch",
    "Checkpoint": "reknit.checkpoint",
    "Closed": "reknit.errors",
    "Code": "reknit.outcome",
    "Codec": "reknit.client.codecs",
    "Config": "reknit.config",
    "Event": "reknit.event",
    "Full": "reknit.errors",
    "Gone": "reknit.errors",
    "Group": "reknit.client.group.group",
    "InvalidAddress": "reknit.errors",
    "InvalidAttributes": "reknit.errors",
    "InvalidCheckpoint": "reknit.errors",
    "InvalidConfig": "reknit.errors",
    "InvalidPayload": "reknit.errors",
    "InvalidTopic": "reknit.errors",
    "LocalError": "reknit.errors",
    "LossReport": "reknit.protocol.subscribe.subscriber",
    "MalformedFrame": "reknit.errors",
    "Modified": "reknit.errors",
    "MsgPack": "reknit.client.codecs",
    "NotConnected": "reknit.errors",
    "NotOpen": "reknit.errors",
    "Outcome": "reknit.outcome",
    "OutcomePublisher": "reknit.client.publish.outcomes",
    "Publisher": "reknit.client.publish.publisher",
    "Refused": "reknit.errors",
    "Reject": "reknit.client.app",
    "Rejected": "reknit.errors",
    "ReknitError": "reknit.errors",
    "Released": "reknit.errors",
    "RemoteError": "reknit.errors",
    "Reply": "reknit.client.rpc.requests",
    "Request": "reknit.client.rpc.service",
    "RequestFailed": "reknit.errors",
    "Retry": "reknit.client.app",
    "ScheduledEvent": "reknit.client.publish.scheduling",
    "Service": "reknit.client.rpc.service",
    "Session": "reknit.client.session",
    "Subscription": "reknit.client.subscribe.subscription",
    "SyncPublisher": "reknit.client.blocking.publisher",
    "SyncSession": "reknit.client.blocking.session",
    "SyncSubscription": "reknit.client.blocking.subscription",
    "SyncTypedPublisher": "reknit.client.blocking.typed",
    "SyncTypedSubscription": "reknit.client.blocking.typed",
    "TlsFailed": "reknit.errors",
    "TooLarge": "reknit.errors",
    "TypedEvent": "reknit.event",
    "TypedPublisher": "reknit.client.publish.typed_publisher",
    "TypedSubscription": "reknit.client.subscribe.typed_subscription",
    "Undelivered": "reknit.errors",
    "VersionMismatch": "reknit.errors",
    "__version__": "reknit.version",
    "connect": "reknit.client.session",
    "connect_sync": "reknit.client.blocking.session",
}


if not TYPE_CHECKING:  # otherwise a misspelt name would pass the type checker

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'reknit' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(home), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
