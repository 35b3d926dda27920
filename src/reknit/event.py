"""Events. An event and its batch refer to each other, so `reknit.batch` defines both. This module re-exports it."""

from __future__ import annotations

from reknit.batch import Event, TypedEvent
from reknit.batch_layout import FLAG_STREAM, SIZE_COLUMN

__all__ = ["FLAG_STREAM", "SIZE_COLUMN", "Event", "TypedEvent"]
