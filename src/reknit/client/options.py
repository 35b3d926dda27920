"""The options of a publisher, a subscription and a group.

The async and the blocking interface take the same keywords. Each makes one of these values from them, and passes it on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypedDict, get_args

import msgspec

from reknit.batch import PRIORITY_DEFAULT
from reknit.checkpoint import Checkpoint
from reknit.config import MulticastSettings
from reknit.errors import LocalError
from reknit.fields import QueueName, QueueOrder
from reknit.protocol.sealing.shared_keys import SharedKeys
from reknit.protocol.subscribe.subscriber import LossReport

OnLost = Callable[[LossReport], None]


class PublisherKeywords(TypedDict, total=False):
    """The keywords of `Session.publisher` that do not decide what publishing gives."""

    wait: bool
    ttl_ms: int
    priority: int
    source: bytes | None
    cache: bool
    history: int | None
    heartbeat_s: float | None
    is_heartbeat_periodic: bool
    stored_by: int


class PublisherOptions(msgspec.Struct, frozen=True, kw_only=True):
    """See `Session.publisher`."""

    wait: bool = True
    ttl_ms: int = 0
    priority: int = PRIORITY_DEFAULT
    source: bytes | None = None
    cache: bool = True
    history: int | None = None
    heartbeat_s: float | None = None
    is_heartbeat_periodic: bool = False
    stored_by: int = 1
    resend_released: bool = False
    outcome: bool = False


class SubscribeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """See `Session.subscribe`."""

    name: str = ""
    queue: str = ""
    order: QueueOrder = ""
    history: bool | int | float | timedelta = False
    start: Checkpoint | None = None
    auto_accept: bool = True
    on_lost: OnLost | None = None
    confirm_losses: bool = True
    caches: Sequence[str] | None = None
    recover: bool = True
    query_s: float | None = None
    is_cache: bool = False
    streams: bool = False


def check_queue(options: SubscribeOptions) -> None:
    """Refuse here what the node would end the connection for.

    >>> check_queue(SubscribeOptions(queue="my workers"))
    Traceback (most recent call last):
    ...
    reknit.errors.LocalError: Invalid queue 'my workers': it may have letters, digits and _ . : @ - , up to 255 of them.
    """
    if not options.queue:
        raise LocalError(f"Invalid order {options.order!r}: only a queue has one. Say queue=…, too.")
    if options.order not in get_args(QueueOrder):
        raise LocalError(
            f"Invalid order {options.order!r} of queue {options.queue!r}: it is 'key' or 'source'."
        )
    try:
        msgspec.convert(options.queue, QueueName)
    except msgspec.ValidationError:
        text = "it may have letters, digits and _ . : @ - , up to 255 of them."
        raise LocalError(f"Invalid queue {options.queue!r}: {text}") from None
    if options.name or options.is_cache or options.streams:
        raise LocalError(
            f"Invalid subscription to queue {options.queue!r}: a member has no name=…, and takes no streams."
        )


class GroupOptions(msgspec.Struct, frozen=True, kw_only=True):
    """See `Session.group`."""

    member: str = ""
    seeds: Sequence[str] | None = None
    settings: MulticastSettings | None = None
    discard_own: bool = False
    is_given: bool = False
    is_journaled: bool = True
    keys: SharedKeys | None = None
    """The keys that the members share, in place of those of `group.key_file` or the environment."""
