"""Links and deliveries of proton's engine: what can be asked of them and done with them.

This file and engine.py are the only ones that touch proton. They use its C functions themselves: the Python objects
around them cost more for one delivery than all else that a gateway does for it. A handle is a C pointer; a delivery's
is good until it is settled, a link's until it is freed. Whoever holds one lets go of it before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import cproton
from cproton_ffi import ffi, lib

from reknit.outcome import Outcome

Handle = Any
"""A pointer to a session, a link or a delivery."""
BUFFER_BYTES: Final = 1 << 16
_SYMBOLS_MAX: Final = 64

ACCEPTED: Final[int] = lib.PN_ACCEPTED
RELEASED: Final[int] = lib.PN_RELEASED
REJECTED: Final[int] = lib.PN_REJECTED
MODIFIED: Final[int] = lib.PN_MODIFIED
RECEIVED: Final[int] = lib.PN_RECEIVED


class Terminus(NamedTuple):
    """One end of a link, as the client asked for it."""

    address: str
    is_dynamic: bool
    is_durable: bool
    """Whether it shall outlive the link: by its durability, or because it never expires."""
    capabilities: tuple[str, ...]


Arrived = tuple[Handle, bytes, bool]
"""A whole message: its delivery, its bytes, and whether the client has settled it."""


# -- conditions and terminuses


def condition(handle: Handle) -> tuple[str, str]:
    """A condition's name and its words; both empty where there is none."""
    if not handle or not lib.pn_condition_is_set(handle):
        return "", ""
    return _text(lib.pn_condition_get_name(handle)), _text(lib.pn_condition_get_description(handle))


def _text(pointer: Any) -> str:
    return str(ffi.string(pointer), "utf-8", "replace") if pointer else ""


def set_condition(handle: Handle, name: str, text: str) -> None:
    """Say why something ends."""
    if name:
        cproton.pn_condition_set_name(handle, name)
        cproton.pn_condition_set_description(handle, text)


def put_symbols(data: Any, names: tuple[str, ...]) -> None:
    """Write an array of symbols."""
    if names:
        lib.pn_data_put_array(data, False, lib.PN_SYMBOL)
        lib.pn_data_enter(data)
        for name in names:
            cproton.pn_data_put_symbol(data, name)
        lib.pn_data_exit(data)


def _symbols(data: Any) -> tuple[str, ...]:
    """One symbol, or an array of them."""
    lib.pn_data_rewind(data)
    found: list[str] = []
    if lib.pn_data_next(data):
        if lib.pn_data_type(data) == lib.PN_SYMBOL:
            return (_symbol(data),)
        if lib.pn_data_type(data) == lib.PN_ARRAY:
            lib.pn_data_enter(data)
            while len(found) < _SYMBOLS_MAX and lib.pn_data_next(data):
                if lib.pn_data_type(data) == lib.PN_SYMBOL:
                    found.append(_symbol(data))
            lib.pn_data_exit(data)
    return tuple(found)


def _symbol(data: Any) -> str:
    found = lib.pn_data_get_symbol(data)
    return str(ffi.unpack(found.start, found.size), "ascii", "replace")


def _terminus(handle: Handle) -> Terminus:
    address = lib.pn_terminus_get_address(handle)
    is_durable = (
        lib.pn_terminus_get_durability(handle) != lib.PN_NONDURABLE
        or lib.pn_terminus_get_expiry_policy(handle) == lib.PN_EXPIRE_NEVER
    )
    capabilities = _symbols(lib.pn_terminus_capabilities(handle))
    return Terminus(_text(address), bool(lib.pn_terminus_is_dynamic(handle)), is_durable, capabilities)


# -- links


def is_sender(link: Handle) -> bool:
    """Whether we send on it: the client's receiver."""
    return bool(lib.pn_link_is_sender(link))


def link_name(link: Handle) -> str:
    """The name that the client gave it."""
    return _text(lib.pn_link_name(link))


def source(link: Handle) -> Terminus:
    """Where the link's messages come from."""
    return _terminus(lib.pn_link_remote_source(link))


def target(link: Handle) -> Terminus:
    """Where the link's messages go."""
    return _terminus(lib.pn_link_remote_target(link))


def is_coordinator(link: Handle) -> bool:
    """Whether the client wants transactions."""
    return bool(lib.pn_terminus_get_type(lib.pn_link_remote_target(link)) == lib.PN_COORDINATOR)


def wants_settled(link: Handle) -> bool:
    """Whether the client wants deliveries that are settled already."""
    return bool(lib.pn_link_remote_snd_settle_mode(link) == lib.PN_SND_SETTLED)


def open_link(link: Handle, message_bytes_max: int, address: str = "") -> None:
    """Attach from our side: as asked, or with an address that was made for it."""
    lib.pn_terminus_copy(lib.pn_link_source(link), lib.pn_link_remote_source(link))
    lib.pn_terminus_copy(lib.pn_link_target(link), lib.pn_link_remote_target(link))
    if address:
        ours = lib.pn_link_source(link) if is_sender(link) else lib.pn_link_target(link)
        cproton.pn_terminus_set_address(ours, address)
    if is_sender(link):
        lib.pn_link_set_snd_settle_mode(link, lib.pn_link_remote_snd_settle_mode(link))
    else:
        lib.pn_link_set_max_message_size(link, message_bytes_max)
        lib.pn_link_set_snd_settle_mode(link, lib.pn_link_remote_snd_settle_mode(link))
    lib.pn_link_open(link)


def refuse_link(link: Handle, name: str, text: str) -> None:
    """Attach without a terminus, then close with the reason: so AMQP wants a refusal."""
    lib.pn_terminus_set_type(lib.pn_link_source(link), lib.PN_UNSPECIFIED)
    lib.pn_terminus_set_type(lib.pn_link_target(link), lib.PN_UNSPECIFIED)
    lib.pn_link_open(link)
    close_link(link, name, text)


def close_link(link: Handle, name: str = "", text: str = "", is_detach: bool = False) -> None:
    """Close a link, or only detach, and say why."""
    set_condition(lib.pn_link_condition(link), name, text)
    if is_detach:
        lib.pn_link_detach(link)
    else:
        lib.pn_link_close(link)


def free_link(link: Handle) -> None:
    """Let go of a link that both sides closed. Its handle and those of its deliveries are no good any more."""
    lib.pn_link_free(link)


credit: Final = lib.pn_link_credit
"""How many deliveries the receiving side still takes."""
grant: Final = lib.pn_link_flow
"""Take so many more deliveries."""
drained: Final = lib.pn_link_drained
"""Use up credit that there is nothing for."""
wants_drain: Final = lib.pn_link_get_drain


# -- deliveries


class Reader:
    """Reads messages off a link. One that is still arriving is held until its last frame."""

    def __init__(self, link: Handle) -> None:
        self._link = link
        self._parts: list[bytes] = []
        self.held_bytes = 0
        """Of a message that is still arriving."""

    def read(self, count_max: int, bytes_max: int) -> list[Arrived]:
        """The whole messages that are there, up to so many, or one more than so many bytes."""
        link = self._link
        found: list[Arrived] = []
        current, pending, partial, receive = (
            lib.pn_link_current, lib.pn_delivery_pending, lib.pn_delivery_partial, lib.pn_link_recv
        )  # fmt: skip
        aborted, settled, advance, unpack = (
            lib.pn_delivery_aborted, lib.pn_delivery_settled, lib.pn_link_advance, ffi.unpack
        )  # fmt: skip
        while len(found) < count_max and bytes_max > 0 and (delivery := current(link)):
            if aborted(delivery):
                self._drop(delivery)
                continue
            size = pending(delivery)
            data = b""
            if size:
                space = _space if size <= BUFFER_BYTES else ffi.new("char[]", size)
                data = unpack(space, receive(link, space, size))
            if partial(delivery):
                if not data:
                    break
                self._parts.append(data)
                self.held_bytes += len(data)
                break
            if self._parts:
                data = b"".join((*self._parts, data))
                self._parts, self.held_bytes = [], 0
            bytes_max -= len(data)
            found.append((delivery, data, settled(delivery)))
            advance(link)
        return found

    def begun(self) -> tuple[Handle, bytes] | None:
        """The message that is still arriving, and what came of it; None if the client has settled it already."""
        delivery = lib.pn_link_current(self._link)
        if not self._parts or not delivery or lib.pn_delivery_settled(delivery):
            return None
        self._parts = [b"".join(self._parts)]
        return delivery, self._parts[0]

    def leave(self) -> None:
        """Somebody else reads the message that is still arriving."""
        self._parts, self.held_bytes = [], 0

    def _drop(self, delivery: Handle) -> None:
        """The client took back a message that it had begun to send."""
        self._parts, self.held_bytes = [], 0
        lib.pn_link_advance(self._link)
        lib.pn_delivery_settle(delivery)


_space: Final = ffi.new("char[]", BUFFER_BYTES)


def read_some(link: Handle, bytes_max: int) -> tuple[bytes, bool, bool]:
    """Some of the message that is arriving, whether it ends with that, and whether it was taken back."""
    delivery = lib.pn_link_current(link)
    if not delivery:
        return b"", False, False
    if lib.pn_delivery_aborted(delivery):
        return b"", False, True
    size = min(lib.pn_delivery_pending(delivery), bytes_max, BUFFER_BYTES)
    data = ffi.unpack(_space, lib.pn_link_recv(link, _space, size)) if size > 0 else b""
    is_last = not lib.pn_delivery_partial(delivery) and not lib.pn_delivery_pending(delivery)
    return data, is_last, False


advance: Final = lib.pn_link_advance
"""Go on with the next delivery."""


def hint(delivery: Handle, outcome: int) -> None:
    """Tell the outcome of a message that is still arriving: its sender may stop. It is settled at its end."""
    states = {Outcome.RELEASED: RELEASED, Outcome.REJECTED: REJECTED, Outcome.MODIFIED: MODIFIED}
    if outcome in states:
        lib.pn_delivery_update(delivery, states[Outcome(outcome)])


# -- streams to a client


def begin(link: Handle, tag: bytes, data: bytes) -> Handle:
    """The beginning of a message; gives its delivery."""
    delivery = lib.pn_delivery(link, (len(tag), ffi.from_buffer(tag)))
    lib.pn_link_send(link, data, len(data))
    return delivery


def go_on(link: Handle, data: bytes) -> None:
    """More of the message that was begun."""
    if data:
        lib.pn_link_send(link, data, len(data))


abort: Final = lib.pn_delivery_abort
"""Take back a message that was begun. Its handle is no good any more."""


def accept(deliveries: list[Handle]) -> None:
    """Accept and settle."""
    update, settle, state = lib.pn_delivery_update, lib.pn_delivery_settle, ACCEPTED
    for delivery in deliveries:
        update(delivery, state)
        settle(delivery)


settle: Final = lib.pn_delivery_settle
"""No more will be said about it."""


def release(delivery: Handle) -> None:
    """It was not processed."""
    lib.pn_delivery_update(delivery, RELEASED)
    lib.pn_delivery_settle(delivery)


def reject(delivery: Handle, name: str, text: str) -> None:
    """It can never be processed."""
    set_condition(lib.pn_disposition_condition(lib.pn_delivery_local(delivery)), name, text)
    lib.pn_delivery_update(delivery, REJECTED)
    lib.pn_delivery_settle(delivery)


def modify(delivery: Handle, is_failed: bool, is_undeliverable: bool) -> None:
    """It was tried in vain, or is not for here."""
    local = lib.pn_delivery_local(delivery)
    lib.pn_disposition_set_failed(local, is_failed)
    lib.pn_disposition_set_undeliverable(local, is_undeliverable)
    lib.pn_delivery_update(delivery, MODIFIED)
    lib.pn_delivery_settle(delivery)


def received(delivery: Handle) -> None:
    """Somebody is at it; the outcome follows."""
    lib.pn_delivery_update(delivery, RECEIVED)


def send(link: Handle, messages: Iterable[tuple[bytes, bytes]], is_settled: bool) -> list[Handle]:
    """Whole messages, each with its tag; gives their deliveries."""
    make, write, advance, settle = (
        lib.pn_delivery,
        lib.pn_link_send,
        lib.pn_link_advance,
        lib.pn_delivery_settle,
    )
    made: list[Handle] = []
    for tag, data in messages:
        delivery = make(link, (len(tag), ffi.from_buffer(tag)))
        write(link, data, len(data))
        if is_settled:
            settle(delivery)
        advance(link)
        made.append(delivery)
    return made


def waiting_bytes(link: Handle) -> int:
    """How much of the link's session waits to be sent."""
    return int(lib.pn_session_outgoing_bytes(lib.pn_link_session(link)))


state_of: Final = lib.pn_delivery_remote_state
"""What the client says about it so far; 0 for nothing."""
is_settled: Final = lib.pn_delivery_settled
"""Whether the client will say no more about it."""


def said_condition(delivery: Handle) -> tuple[str, str]:
    """Why the client rejected it."""
    return condition(lib.pn_disposition_condition(lib.pn_delivery_remote(delivery)))


def said_modified(delivery: Handle) -> tuple[bool, bool]:
    """With MODIFIED: whether it failed, and whether it is undeliverable here."""
    remote = lib.pn_delivery_remote(delivery)
    return bool(lib.pn_disposition_is_failed(remote)), bool(lib.pn_disposition_is_undeliverable(remote))
