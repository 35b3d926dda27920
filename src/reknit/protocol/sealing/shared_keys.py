"""The keys that the members of a group share: one is used to send, and all are accepted."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from typing import Final

from reknit.errors import InvalidConfig

KEY_BYTES: Final = 32
KEYS_MAX: Final = 16
"""How many keys a member accepts at a time."""


class SharedKey:
    """A secret of 32 bytes, and the number that names it in datagrams. It shows nothing of the secret.

    >>> SharedKey(bytes(32))
    SharedKey('bb3ba509')
    """

    __slots__ = ("id", "secret")

    def __init__(self, secret: bytes) -> None:
        assert len(secret) == KEY_BYTES
        self.secret = secret
        self.id = int.from_bytes(hmac.digest(secret, b"reknit group key id", hashlib.sha256)[:4], "little")

    @property
    def name(self) -> str:
        """The id as people see it."""
        return f"{self.id:08x}"

    def __repr__(self) -> str:
        return f"SharedKey({self.name!r})"


class SharedKeys:
    """All keys that a member accepts. The first one is used for what it sends.

    >>> keys = SharedKeys.parse(f"{'11' * 32}  # since May\\n{'22' * 32}")
    >>> keys.used, len(keys)
    (SharedKey('addbf35b'), 2)
    """

    def __init__(self, keys: list[SharedKey]) -> None:
        assert keys
        self._by_id = {key.id: key for key in keys}
        self.used = keys[0]

    @classmethod
    def parse(cls, text: str, where: str = "the call") -> SharedKeys:
        """Read keys of 64 hexadecimal digits each. Everything after a `#` is a comment. Raises `InvalidConfig`."""
        keys = [_key(word, f"{where} line {number}") for number, word in _words(text)]
        if not keys:
            raise _refused(where, "has no key; run `reknit group key create FILE`")
        if len(keys) > KEYS_MAX:
            raise _refused(
                where, f"has {len(keys)} keys, more than {KEYS_MAX}; remove those that nobody uses"
            )
        return cls(keys)

    def get(self, key: int) -> SharedKey | None:
        """The key with this id."""
        return self._by_id.get(key)

    def __iter__(self) -> Iterator[SharedKey]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)


def _words(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        for word in line.partition("#")[0].split():
            yield number, word


def _key(word: str, where: str) -> SharedKey:
    """The text of a wrong key may be nearly a secret, so the error does not show it."""
    try:
        secret = bytes.fromhex(word)
    except ValueError:
        secret = b""
    if len(secret) != KEY_BYTES:
        why = f"is not a key: it has {len(word)} characters, and a key has {2 * KEY_BYTES} hexadecimal digits"
        raise _refused(where, why)
    return SharedKey(secret)


def _refused(where: str, why: str) -> InvalidConfig:
    return InvalidConfig("group.key_file", where, why)
