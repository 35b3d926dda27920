"""Seals the datagrams that a member sends, and decides about those that arrive.

No key and nonce are ever used twice: a member's id is random and new with every start, keys are derived from it, and the
nonce is a counter that goes on when keys are replaced.

`open` runs for every datagram, so it is one function: the first 32 bytes find the sender, the key and the cipher.
"""

from __future__ import annotations

from enum import Enum
from struct import Struct
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from reknit.frame import Buffer
from reknit.protocol.sealing.ciphers import EPOCH_BITS, make_cipher
from reknit.protocol.sealing.replay_window import ReplayWindow
from reknit.protocol.sealing.shared_keys import SharedKeys
from reknit.wire.bundle import ENVELOPE, MAGIC, VERSION, Datagram
from reknit.wire.sealed import (
    SEALED_HEAD,
    SEALED_START,
    SEALED_VERSION,
    TAG_BYTES,
    TO_ALL,
    to_member,
)

SENDERS_MAX: Final = 4096
"""How many senders' counters are remembered. A new sender evicts the one that was silent for longest."""
EPOCH_MASK: Final = (1 << EPOCH_BITS) - 1
HEAD_BYTES: Final = SEALED_HEAD.size
SEALED_BYTES_MIN: Final = HEAD_BYTES + TAG_BYTES
SAME_BYTES: Final = 32
"""How many bytes of the head are the same in all datagrams of a sender and key."""
COPIED_BYTES: Final = 4_096
"""A shorter datagram is copied in less time than it takes to make a view of it."""
_REST: Final = Struct("<QQQ")
"""The rest of the head: stable, to and counter."""
_TO: Final = Struct("<Q")
_ZERO: Final = bytes(4)
"""Before the counter in a nonce, which has 12 bytes."""
_new: Final = tuple.__new__
"""Makes a value in half the time that its class takes."""


class Verdict(Enum):
    """What becomes of a datagram. All but the first two are refusals, which are counted."""

    ACCEPTED = "accepted"
    IGNORED = "ignored"
    """It belongs to another group, or is our own."""
    PLAIN = "plain"
    """It is not sealed."""
    UNKNOWN_KEY = "unknown_key"
    FORGED = "forged"
    """It names a key that we have, and was not sealed with it, or was changed on the way."""
    REPLAYED = "replayed"
    """It came before, or is too old to tell."""
    MISDIRECTED = "misdirected"
    """It was meant for another member."""
    MALFORMED = "malformed"


class Opened(NamedTuple):
    """A datagram after the decision. An accepted one has a sender and items."""

    verdict: Verdict
    sender: bytes = b""
    stable: int = 0
    items: bytes = b""


_REFUSED: Final = {verdict: Opened(verdict) for verdict in Verdict}
_ACCEPTED: Final = Verdict.ACCEPTED


class _Sender:
    """A sender that sent at least one good datagram."""

    __slots__ = ("id", "used", "window")

    def __init__(self, sender: bytes) -> None:
        self.id = sender
        self.window = ReplayWindow()
        self.used = 0
        """How many senders there had been when its last datagram came."""


class _Opener(NamedTuple):
    """Opens the datagrams of one sender, key and epoch."""

    sender: _Sender
    cipher: AESGCM
    epoch: int


class Seal:
    """One member's seal.

    >>> keys = SharedKeys.parse("11" * 32)
    >>> ann, bob = Seal(7, b"a" * 16, keys), Seal(7, b"b" * 16, keys)
    >>> plain = [ENVELOPE.pack(MAGIC, VERSION, 0, 0, 7, b"a" * 16, 3), b"items"]
    >>> [sealed] = [b"".join(parts) for parts in ann.seal([plain])]
    >>> bob.open(sealed).items, bob.open(sealed).verdict
    (b'items', <Verdict.REPLAYED: 'replayed'>)
    """

    def __init__(self, group: int, me: bytes, keys: SharedKeys) -> None:
        self._group, self._me, self._to_me = group, me, to_member(me)
        self._counter = 0
        self._senders: dict[bytes, _Sender] = {}
        self._count = 0
        """How many senders there were so far."""
        self._openers: dict[bytes, _Opener] = {}
        """By the part of the head that is the same in all datagrams of a sender and key."""
        self.use(keys)

    def use(self, keys: SharedKeys) -> None:
        """From now on, use and accept these keys. The counter goes on, so that going back to a key is safe, too."""
        self._keys = keys
        self._openers.clear()
        self._renew()

    def _renew(self) -> None:
        used = self._keys.used
        self._start = SEALED_START.pack(MAGIC, SEALED_VERSION, 0, used.id)
        self._cipher = make_cipher(used, self._group, self._me, self._counter >> EPOCH_BITS)

    # -- sending

    def seal(self, datagrams: list[Datagram], to: int = TO_ALL) -> list[Datagram]:
        """Seal plain datagrams with the same envelope, for everyone or for one member (see `to_member`)."""
        sealed: list[Datagram] = []
        begin = b""
        for datagram in datagrams:
            self._counter = counter = self._counter + 1
            if not counter & EPOCH_MASK:
                self._renew()
                begin = b""
            if not begin:
                begin = self._start + datagram[0][SEALED_START.size :] + _TO.pack(to)
            number = counter.to_bytes(8, "little")
            head = begin + number
            items = datagram[1] if len(datagram) == 2 else b"".join(datagram[1:])
            sealed.append([head, self._cipher.encrypt(_ZERO + number, items, head)])
        return sealed

    # -- receiving

    def open(self, datagram: Buffer) -> Opened:
        """Decide about a datagram. Only good ones change anything."""
        head = bytes(datagram[:HEAD_BYTES])
        opener = self._openers.get(head[:SAME_BYTES])
        if opener is None or len(datagram) < SEALED_BYTES_MIN:
            return self._open_first(datagram)
        stable, to, counter = _REST.unpack_from(head, SAME_BYTES)
        sender, cipher, epoch = opener
        if counter >> EPOCH_BITS != epoch:
            return self._open_first(datagram)
        window = sender.window
        if counter <= window.high and not window.is_new(counter):
            return _REFUSED[Verdict.REPLAYED]
        if to and to != self._to_me:
            return _REFUSED[Verdict.MISDIRECTED]
        try:
            sealed = datagram if len(datagram) < COPIED_BYTES else memoryview(datagram)
            items = cipher.decrypt(_ZERO + head[-8:], sealed[HEAD_BYTES:], head)
        except InvalidTag:
            return _REFUSED[Verdict.FORGED]
        window.add(counter)
        sender.used = self._count
        return _new(Opened, (_ACCEPTED, sender.id, stable, items))

    def _open_first(self, datagram: Buffer) -> Opened:
        """Decide about a datagram for which there is no opener, and keep one if it is good."""
        refusal = self._refusal(datagram)
        if refusal is not None:
            return _REFUSED[refusal]
        same = bytes(datagram[:SAME_BYTES])
        _, _, _, key, _, sender, _, _, counter = SEALED_HEAD.unpack_from(datagram)
        shared = self._keys.get(key)
        assert shared is not None
        epoch = counter >> EPOCH_BITS
        known = self._senders.get(sender) or _Sender(sender)
        before = self._openers.pop(same, None)
        self._openers[same] = _Opener(known, make_cipher(shared, self._group, sender, epoch), epoch)
        opened = self.open(datagram)
        if opened.verdict is not _ACCEPTED:
            del self._openers[same]
            if before is not None:
                self._openers[same] = before
        elif sender not in self._senders:
            self._remember(known)
        return opened

    def _refusal(self, datagram: Buffer) -> Verdict | None:
        """Why a datagram can't be one of this group, sealed with a key that we have."""
        if len(datagram) < ENVELOPE.size:
            return Verdict.MALFORMED
        magic, version, _, key, group, sender, _ = ENVELOPE.unpack_from(datagram)
        if magic != MAGIC or version not in (VERSION, SEALED_VERSION):
            return Verdict.MALFORMED
        if group != self._group or sender == self._me:
            return Verdict.IGNORED
        if version == VERSION:
            return Verdict.PLAIN
        if len(datagram) < SEALED_BYTES_MIN:
            return Verdict.MALFORMED
        return Verdict.UNKNOWN_KEY if self._keys.get(key) is None else None

    def _remember(self, sender: _Sender) -> None:
        self._count += 1
        self._senders[sender.id] = sender
        if len(self._senders) > SENDERS_MAX:
            oldest = min(self._senders.values(), key=lambda one: one.used)
            del self._senders[oldest.id]
            for same in [same for same, opener in self._openers.items() if opener.sender is oldest]:
                del self._openers[same]
