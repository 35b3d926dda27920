"""Which datagrams of a sender came, so that none is accepted twice."""

from __future__ import annotations

from typing import Final

WORD_BITS: Final = 64
WORDS: Final = 256
WINDOW: Final = (WORDS - 1) * WORD_BITS
"""How far behind the highest counter a datagram may be. The two sockets of a member are read in turn, and each may have
thousands of small datagrams waiting. An older one counts as a replay, and its events are requested again."""


class ReplayWindow:
    """The counters of one sender, as a ring of bits (RFC 6479).

    >>> window = ReplayWindow()
    >>> window.add(5)
    >>> window.is_new(5), window.is_new(4), window.is_new(6)
    (False, True, True)
    """

    __slots__ = ("_words", "high")

    def __init__(self) -> None:
        self.high = 0
        """The highest counter that came."""
        self._words = [0] * WORDS

    def is_new(self, counter: int) -> bool:
        """False for a counter that came, or that is too old to tell."""
        if counter > self.high:
            return True
        if self.high - counter >= WINDOW:
            return False
        return not self._words[(counter // WORD_BITS) % WORDS] >> (counter % WORD_BITS) & 1

    def add(self, counter: int) -> None:
        """A datagram with this counter was accepted."""
        word = counter // WORD_BITS
        if counter > self.high:
            before, self.high = self.high // WORD_BITS, counter
            if before != word:
                for cleared in range(max(before + 1, word - WORDS + 1), word + 1):
                    self._words[cleared % WORDS] = 0
        self._words[word % WORDS] |= 1 << counter % WORD_BITS
