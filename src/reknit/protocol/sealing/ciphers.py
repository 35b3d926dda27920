"""The cipher of one sender and epoch, with a key that is derived from a shared one.

AES-256 in Galois/Counter Mode: on processors with instructions for it, it takes a third of the time of
ChaCha20-Poly1305 (9.7 against 29 µs for 65,400 bytes, 1.9 against 2.5 µs for 1,400 on a machine for tests).
"""

from __future__ import annotations

import struct
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from reknit.protocol.sealing.shared_keys import KEY_BYTES, SharedKey

EPOCH_BITS: Final = 22
"""A sender takes a new key after 2**22 datagrams: 2**34 blocks of the largest ones, far below what weakens the mode."""
_SALT: Final = b"reknit group datagrams 2"
_INFO: Final = struct.Struct("<Q16sQ")


def make_cipher(key: SharedKey, group: int, sender: bytes, epoch: int) -> AESGCM:
    """The cipher of a sender in a group for the counters of one epoch."""
    info = _INFO.pack(group, sender, epoch)
    return AESGCM(HKDF(SHA256(), KEY_BYTES, _SALT, info).derive(key.secret))
