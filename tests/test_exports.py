"""The names that `import reknit` exports are a promise. A change of them needs a change of this list."""

from __future__ import annotations

import subprocess
import sys

import pytest

import reknit

EXPORTS = [
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


def test_the_export_list_is_this() -> None:
    assert reknit.__all__ == EXPORTS


@pytest.mark.parametrize("name", EXPORTS)
def test_everything_on_the_list_is_there(name: str) -> None:
    assert getattr(reknit, name) is not None
    assert name in dir(reknit)


def test_anything_else_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Sesion"):
        _ = reknit.Sesion  # type: ignore[attr-defined]


def test_importing_reknit_loads_next_to_nothing() -> None:
    code = "import sys, reknit; print(sum(name.startswith('reknit.') for name in sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(found.stdout) == 0
