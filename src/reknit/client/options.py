"""The options of a publisher, a subscription and a group.

The async and the blocking interface take the same keywords. Each makes one of these values from them, and passes it on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypedDict, get_args

import msgspec

from reknit.batch import PRIORITY_DEFAULT, SOURCE_BYTES
from reknit.checkpoint import Checkpoint
from reknit.config import MulticastSettings
from reknit.errors import LocalError
from reknit.fields import SECONDS_MAX, QueueName
from reknit.protocol.sealing.shared_keys import SharedKeys
from reknit.protocol.subscribe.subscriber import LossReport
from reknit.queue_order import QueueOrder

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


class SubscribeKeywords(TypedDict, total=False):
    """The keywords of `Session.subscribe`, for type checkers."""

    name: str
    queue: str
    order: QueueOrder
    history: bool | int | float | timedelta
    start: Checkpoint | None
    auto_accept: bool
    on_lost: OnLost | None
    confirm_losses: bool
    caches: Sequence[str] | None
    recover: bool
    query_s: float | None
    is_cache: bool
    streams: bool


class SyncSubscribeKeywords(TypedDict, total=False):
    """The keywords of `SyncSession.subscribe`, for type checkers."""

    name: str
    queue: str
    history: bool | int | float | timedelta
    start: Checkpoint | None
    auto_accept: bool
    on_lost: OnLost | None
    idle_s: float | None
    caches: Sequence[str] | None
    recover: bool
    query_s: float | None
    streams: bool


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


def check_publisher(options: PublisherOptions) -> None:
    """Raise `LocalError` for options that no publisher can have.

    >>> check_publisher(PublisherOptions(stored_by=0))
    Traceback (most recent call last):
    ...
    reknit.errors.LocalError: Invalid stored_by 0: it must be a whole number from 1.
    """
    _check_whole("stored_by", options.stored_by, 1)
    if options.history is not None:
        _check_whole("history", options.history, 0)
    if options.heartbeat_s is not None:
        _check_seconds("heartbeat_s", options.heartbeat_s)
    source = options.source
    if source is not None and not (isinstance(source, bytes) and len(source) == SOURCE_BYTES):
        raise LocalError(f"Invalid source {source!r}: it must be {SOURCE_BYTES} bytes.")


def check_subscription(options: SubscribeOptions) -> None:
    """Raise `LocalError` for options that no subscription can have.

    >>> check_subscription(SubscribeOptions(history="all"))
    Traceback (most recent call last):
    ...
    reknit.errors.LocalError: Invalid history 'all': True for everything, a count, or an age as a float or timedelta.
    """
    if not isinstance(options.history, bool | int | float | timedelta):
        text = "True for everything, a count, or an age as a float or timedelta."
        raise LocalError(f"Invalid history {options.history!r}: {text}")
    if options.start is not None and not isinstance(options.start, Checkpoint):
        raise LocalError(
            f"Invalid start {options.start!r}: it must be a Checkpoint, see Checkpoint.from_text."
        )
    if options.on_lost is not None and not callable(options.on_lost):
        raise LocalError(f"Invalid on_lost {options.on_lost!r}: it must be a function.")
    if isinstance(options.caches, str):
        raise LocalError(f"Invalid caches {options.caches!r}: pass a list of addresses.")
    if options.query_s is not None:
        _check_seconds("query_s", options.query_s)
    for what, given in (("name", options.name), ("queue", options.queue)):
        if not isinstance(given, str):
            raise LocalError(f"Invalid {what} {given!r}: it must be a text.")
    if options.queue or options.order:
        check_queue(options)


def _check_whole(what: str, given: object, low: int) -> None:
    if type(given) is not int or given < low:
        raise LocalError(f"Invalid {what} {given!r}: it must be a whole number from {low}.")


def _check_seconds(what: str, given: object) -> None:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= SECONDS_MAX:
        raise LocalError(f"Invalid {what} {given!r}: it must be a number of seconds from 0.")


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
