"""Links and deliveries of proton's engine, as functions on handles.

Only this file and engine.py touch proton. They call its C functions directly: proton's Python objects cost more per
delivery than everything else that the gateway does. A handle is a C pointer. A delivery's handle is valid until the
delivery is settled, a link's until the link is freed. Drop a handle before that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import cproton
from cproton_ffi import ffi, lib

from reknit.gateway.amqp.codec.conditions import ANNOTATIONS_BYTES_MAX, Modified
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
    """Whether it outlives the link: by its durability, or because it never expires."""
    capabilities: tuple[str, ...]


WholeMessage = tuple[Handle, bytes, bool]
"""A complete message: its delivery, its bytes, and whether the client has settled it."""


# -- conditions and terminuses


def condition(handle: Handle) -> tuple[str, str]:
    """A condition's name and description; both empty without a condition."""
    if not handle or not lib.pn_condition_is_set(handle):
        return "", ""
    return text_of(lib.pn_condition_get_name(handle)), text_of(lib.pn_condition_get_description(handle))


def text_of(pointer: Any) -> str:
    """A C string as text. Bytes that are not UTF-8 are replaced."""
    return str(ffi.string(pointer), "utf-8", "replace") if pointer else ""


def set_condition(handle: Handle, name: str, text: str) -> None:
    """Set the reason why something ends."""
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
    """The symbols of a value that is one symbol or an array of them."""
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
    return Terminus(text_of(address), bool(lib.pn_terminus_is_dynamic(handle)), is_durable, capabilities)


# -- links


def is_sender(link: Handle) -> bool:
    """Whether we send on it: the client's receiver."""
    return bool(lib.pn_link_is_sender(link))


def link_name(link: Handle) -> str:
    """The name that the client gave it."""
    return text_of(lib.pn_link_name(link))


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
    """Whether the client wants its messages settled by the sender."""
    return bool(lib.pn_link_remote_snd_settle_mode(link) == lib.PN_SND_SETTLED)


def open_link(link: Handle, message_bytes_max: int, address: str = "") -> None:
    """Attach our side: as the client asked, or with an address that was made for it. No filter is applied, so none is
    echoed: that is how AMQP says so."""
    lib.pn_terminus_copy(lib.pn_link_source(link), lib.pn_link_remote_source(link))
    lib.pn_data_clear(lib.pn_terminus_filter(lib.pn_link_source(link)))
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
    """Attach without a terminus, then close with the reason. This is how AMQP refuses a link."""
    lib.pn_terminus_set_type(lib.pn_link_source(link), lib.PN_UNSPECIFIED)
    lib.pn_terminus_set_type(lib.pn_link_target(link), lib.PN_UNSPECIFIED)
    lib.pn_link_open(link)
    close_link(link, name, text)


def close_link(link: Handle, name: str = "", text: str = "", is_detach: bool = False) -> None:
    """Close a link, or only detach it, with a reason."""
    set_condition(lib.pn_link_condition(link), name, text)
    if is_detach:
        lib.pn_link_detach(link)
    else:
        lib.pn_link_close(link)


def free_link(link: Handle) -> None:
    """Free a link that both sides closed. Its handle and those of its deliveries become invalid."""
    lib.pn_link_free(link)


credit: Final = lib.pn_link_credit
"""How many more deliveries the receiving side takes."""
grant: Final = lib.pn_link_flow
"""Grant credit for this many more deliveries."""
drained: Final = lib.pn_link_drained
"""Use up the rest of the credit."""
wants_drain: Final = lib.pn_link_get_drain


# -- deliveries


class DeliveryReader:
    """Reads messages off a link. A message that is still arriving is held until its last frame."""

    def __init__(self, link: Handle) -> None:
        self._link = link
        self._parts: list[bytes] = []
        self.held_bytes = 0
        """The bytes of a message that is still arriving."""

    def read(self, count_max: int, bytes_max: int) -> list[WholeMessage]:
        """The complete messages on the link, at most `count_max`, and no further one past `bytes_max`."""
        link = self._link
        found: list[WholeMessage] = []
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

    def partial(self) -> tuple[Handle, bytes] | None:
        """The message that is still arriving, and its bytes so far; None if the client has settled it already."""
        delivery = lib.pn_link_current(self._link)
        if not self._parts or not delivery or lib.pn_delivery_settled(delivery):
            return None
        self._parts = [b"".join(self._parts)]
        return delivery, self._parts[0]

    def leave(self) -> None:
        """Another reader continues with the message that is still arriving."""
        self._parts, self.held_bytes = [], 0

    def _drop(self, delivery: Handle) -> None:
        """The client aborted a message that it had begun to send."""
        self._parts, self.held_bytes = [], 0
        lib.pn_link_advance(self._link)
        lib.pn_delivery_settle(delivery)


_space: Final = ffi.new("char[]", BUFFER_BYTES)


def read_some(link: Handle, bytes_max: int) -> tuple[bytes, bool, bool]:
    """Some bytes of the arriving message, whether they are its last, and whether the client aborted it."""
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
"""Continue with the next delivery."""


def hint(delivery: Handle, outcome: int) -> None:
    """Tell the client the outcome of a message that is still arriving, so that it may stop. It is settled at its end."""
    states = {Outcome.RELEASED: RELEASED, Outcome.REJECTED: REJECTED, Outcome.MODIFIED: MODIFIED}
    if outcome in states:
        lib.pn_delivery_update(delivery, states[Outcome(outcome)])


# -- streams to a client


def begin(link: Handle, tag: bytes, data: bytes) -> Handle:
    """Send the beginning of a message. Returns its delivery."""
    delivery = lib.pn_delivery(link, (len(tag), ffi.from_buffer(tag)))
    lib.pn_link_send(link, data, len(data))
    return delivery


def send_more(link: Handle, data: bytes) -> None:
    """Send more of the message that was begun."""
    if data:
        lib.pn_link_send(link, data, len(data))


abort: Final = lib.pn_delivery_abort
"""Abort a message that was begun. Its handle becomes invalid."""


def accept(deliveries: list[Handle]) -> None:
    """Accept and settle."""
    update, settle, state = lib.pn_delivery_update, lib.pn_delivery_settle, ACCEPTED
    for delivery in deliveries:
        update(delivery, state)
        settle(delivery)


settle: Final = lib.pn_delivery_settle
"""Settle without a state."""


def release(delivery: Handle) -> None:
    """Release and settle: it was not processed."""
    lib.pn_delivery_update(delivery, RELEASED)
    lib.pn_delivery_settle(delivery)


def reject(delivery: Handle, name: str, text: str) -> None:
    """Reject and settle: it can never be processed.

    The condition has an empty `info`: azure-servicebus' client expects one, and waits for ever without it.
    """
    condition = lib.pn_disposition_condition(lib.pn_delivery_local(delivery))
    set_condition(condition, name, text)
    if name:
        lib.pn_data_put_map(lib.pn_condition_info(condition))
    lib.pn_delivery_update(delivery, REJECTED)
    lib.pn_delivery_settle(delivery)


def modify(delivery: Handle, fields: Modified) -> None:
    """Modify and settle: the delivery failed, or the message is undeliverable here."""
    local = lib.pn_delivery_local(delivery)
    lib.pn_disposition_set_failed(local, fields.is_failed)
    lib.pn_disposition_set_undeliverable(local, fields.is_undeliverable)
    if fields.annotations:
        data = lib.pn_disposition_annotations(local)
        lib.pn_data_decode(data, fields.annotations, len(fields.annotations))
    lib.pn_delivery_update(delivery, MODIFIED)
    lib.pn_delivery_settle(delivery)


def received(delivery: Handle) -> None:
    """A receiver has it. The outcome follows."""
    lib.pn_delivery_update(delivery, RECEIVED)


def send(link: Handle, messages: Iterable[tuple[bytes, bytes]], is_settled: bool) -> list[Handle]:
    """Send complete messages, each with its tag. Returns their deliveries."""
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
    """How many bytes of the link's session wait to be sent."""
    return int(lib.pn_session_outgoing_bytes(lib.pn_link_session(link)))


state_of: Final = lib.pn_delivery_remote_state
"""The state that the client gave it; 0 without one."""
is_settled: Final = lib.pn_delivery_settled
"""Whether the client settled it."""


def remote_condition(delivery: Handle) -> tuple[str, str]:
    """Why the client rejected it."""
    return condition(lib.pn_disposition_condition(lib.pn_delivery_remote(delivery)))


def remote_modified(delivery: Handle) -> Modified:
    """The fields of the client's MODIFIED."""
    remote = lib.pn_delivery_remote(delivery)
    is_failed = bool(lib.pn_disposition_is_failed(remote))
    is_undeliverable = bool(lib.pn_disposition_is_undeliverable(remote))
    return Modified(is_failed, is_undeliverable, _encoded(lib.pn_disposition_annotations(remote)))


def _encoded(data: Any) -> bytes:
    """A value as AMQP encodes it; empty without one, and if it is too long to be passed on."""
    lib.pn_data_rewind(data)
    size = lib.pn_data_encoded_size(data)
    if not 0 < size <= ANNOTATIONS_BYTES_MAX:
        return b""
    space = ffi.new("char[]", size)
    return bytes(ffi.unpack(space, size)) if lib.pn_data_encode(data, space, size) == size else b""
