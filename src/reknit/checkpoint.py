"""A checkpoint: a portable place to resume from, the last seq seen of each source.

Its text is `c1.` and the base64url of its rows (16 bytes of source, the seq as a varint) in order of source, followed by
their crc32. It fits into a URL, a file name or a command line, and truncation is detected.
"""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import ItemsView, Mapping
from types import MappingProxyType

from reknit.errors import InvalidCheckpoint

__all__ = ["Checkpoint"]

SOURCE_BYTES = 16
SEQ_MAX = 2**63 - 1

_VERSION = "c1."
_TEXT = re.compile(r"c(\d+)\.([A-Za-z0-9_-]*)")
_COPY = "copy the whole text again"


class Checkpoint:
    """For each source: everything up to and including `seq` was seen. Frozen. 0 means that a source was never seen.

    >>> ann = bytes(15) + b"a"
    >>> here = Checkpoint({ann: 40})
    >>> here.get(ann), here.advance(ann, 41).get(ann), here.get(bytes(16))
    (40, 41, 0)
    >>> Checkpoint.from_text(str(here)) == here
    True
    """

    __slots__ = ("_seqs",)
    _seqs: Mapping[bytes, int]

    def __init__(self, seqs: Mapping[bytes, int] | None = None) -> None:
        rows = {bytes(source): seq for source, seq in (seqs or {}).items() if seq != 0}
        for source, seq in rows.items():
            _check_row(source, seq)
        object.__setattr__(self, "_seqs", MappingProxyType(rows))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"can't set {name!r} of a frozen Checkpoint; use advance() or merge()")

    def get(self, source: bytes) -> int:
        """The last seq seen of a source, or 0.

        >>> Checkpoint().get(bytes(16))
        0
        """
        return self._seqs.get(source, 0)

    def items(self) -> ItemsView[bytes, int]:
        """All (source, seq).

        >>> list(Checkpoint({bytes(16): 5}).items()) == [(bytes(16), 5)]
        True
        """
        return self._seqs.items()

    def advance(self, source: bytes, seq: int) -> Checkpoint:
        """The checkpoint after `seq` of a source was seen. It never moves backwards.

        >>> Checkpoint({bytes(16): 5}).advance(bytes(16), 3).get(bytes(16))
        5
        """
        return self if seq <= self.get(source) else Checkpoint({**self._seqs, source: seq})

    def merge(self, other: Checkpoint) -> Checkpoint:
        """Everything that either has seen: the higher seq of each source.

        >>> one, two = Checkpoint({b"a" * 16: 5, b"b" * 16: 1}), Checkpoint({b"a" * 16: 3, b"c" * 16: 2})
        >>> one.merge(two) == Checkpoint({b"a" * 16: 5, b"b" * 16: 1, b"c" * 16: 2})
        True
        """
        return Checkpoint(
            {source: max(self.get(source), other.get(source)) for source in {*self._seqs, *other._seqs}}
        )

    def includes(self, other: Checkpoint) -> bool:
        """True if this checkpoint has seen everything that the other has.

        >>> Checkpoint({bytes(16): 5}).includes(Checkpoint({bytes(16): 4}))
        True
        """
        return all(self.get(source) >= seq for source, seq in other.items())

    def to_text(self) -> str:
        """The portable form, as in `--from`; also `str(checkpoint)`.

        >>> Checkpoint().to_text()
        'c1.AAAAAA'
        """
        rows = b"".join(source + _varint(self._seqs[source]) for source in sorted(self._seqs))
        closed = rows + binascii.crc32(rows).to_bytes(4, "little")
        return _VERSION + urlsafe_b64encode(closed).rstrip(b"=").decode()

    @classmethod
    def from_text(cls, text: str) -> Checkpoint:
        """Read the text of `to_text`. Raises `InvalidCheckpoint`.

        >>> Checkpoint.from_text("c1.AAAA")
        Traceback (most recent call last):
        reknit.errors.InvalidCheckpoint: checkpoint 'c1.AAAA' is cut off or damaged; copy the whole text again
        """
        text = text.strip()
        rows = _open(text)
        seqs: dict[bytes, int] = {}
        at = 0
        while at < len(rows):
            source = rows[at : at + SOURCE_BYTES]
            seqs[source], at = _read_varint(rows, at + SOURCE_BYTES)
        sound = all(len(source) == SOURCE_BYTES and 0 < seq <= SEQ_MAX for source, seq in seqs.items())
        # Only canonical texts are read, so that every checkpoint has exactly one text.
        if not sound or (made := cls(seqs)).to_text() != text:
            raise InvalidCheckpoint(text, f"is damaged; {_COPY}")
        return made

    def to_json(self) -> dict[str, int]:
        """A plain dict for JSON, sources in hex.

        >>> Checkpoint({bytes(16): 5}).to_json()
        {'00000000000000000000000000000000': 5}
        """
        return {source.hex(): self._seqs[source] for source in sorted(self._seqs)}

    @classmethod
    def from_json(cls, rows: Mapping[str, int]) -> Checkpoint:
        """Read the dict of `to_json`.

        >>> Checkpoint.from_json({"00" * 16: 5}).get(bytes(16))
        5
        """
        try:
            return cls({bytes.fromhex(source): seq for source, seq in rows.items()})
        except (ValueError, TypeError, AttributeError) as error:
            if isinstance(error, InvalidCheckpoint):
                raise
            raise InvalidCheckpoint(repr(rows), "is not an object of {source in hex: seq}") from error

    def __len__(self) -> int:
        return len(self._seqs)

    def __eq__(self, other: object) -> bool:
        return self._seqs == other._seqs if isinstance(other, Checkpoint) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self._seqs.items()))

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return f"Checkpoint.from_text({self.to_text()!r})"

    def __reduce__(self) -> tuple[type[Checkpoint], tuple[dict[bytes, int]]]:
        return Checkpoint, (dict(self._seqs),)


def _check_row(source: bytes, seq: int) -> None:
    if len(source) != SOURCE_BYTES:
        raise InvalidCheckpoint(
            source.hex(), f"has a source of {len(source)} bytes; a source has {SOURCE_BYTES} bytes"
        )
    if not isinstance(seq, int) or not 0 <= seq <= SEQ_MAX:
        raise InvalidCheckpoint(
            f"{source.hex()}: {seq}", f"has an invalid seq; a seq is an integer from 0 to {SEQ_MAX}"
        )


def _open(text: str) -> bytes:
    """The rows behind version, base64 and crc."""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise InvalidCheckpoint(
            text, f"is not the text of a checkpoint, which begins with '{_VERSION}'; {_COPY}"
        )
    if f"c{found[1]}." != _VERSION:
        raise InvalidCheckpoint(
            text, f"has version {found[1]}, and this side reads version 1; upgrade this side"
        )
    body = found[2]
    closed = urlsafe_b64decode(body + "=" * (-len(body) % 4)) if len(body) % 4 != 1 else b""
    if len(closed) < 4 or binascii.crc32(closed[:-4]) != int.from_bytes(closed[-4:], "little"):
        raise InvalidCheckpoint(text, f"is cut off or damaged; {_COPY}")
    return closed[:-4]


def _varint(number: int) -> bytes:
    """Seven bits a byte, lowest first; a set high bit means that more follow."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number and the offset after it; 0, which no row has, if the number is truncated or too long."""
    number = shift = 0
    while at < len(data) and shift < 70:
        number |= (data[at] & 0x7F) << shift
        at, shift, more = at + 1, shift + 7, data[at] & 0x80
        if not more:
            return number, at
    return 0, len(data)
