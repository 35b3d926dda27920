"""An index of patterns: which of many patterns match a topic."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from reknit.topic import ANY, REST, VERBATIM, Part, Pattern, is_reserved, pieces_match

__all__ = ["TopicIndex"]

T = TypeVar("T", bound=Hashable)


class TopicIndex(Generic[T]):
    """Values under patterns; `match` gives the values whose pattern matches a topic, each once, oldest first.

    The index is a trie by segments, walked once for all patterns. Repeated topics come from a bounded cache.

    >>> index: TopicIndex[str] = TopicIndex()
    >>> index.add(Pattern("plant/*/temp"), "ann"), index.add(Pattern("**"), "bob")
    (True, True)
    >>> index.match("plant/7/temp"), index.match("car/1")
    (('ann', 'bob'), ('bob',))
    """

    def __init__(self, cached_values_max: int = 262_144) -> None:
        self._root: _TrieNode[T] = _TrieNode()
        self._added = 0
        self._size = 0
        self._cache: OrderedDict[str, tuple[T, ...]] = OrderedDict()
        self._cached_values = 0
        self._cached_values_max = cached_values_max

    def __len__(self) -> int:
        return self._size

    def add(self, pattern: Pattern, value: T) -> bool:
        """Put a value under a pattern; False if it was there already.

        >>> index: TopicIndex[int] = TopicIndex()
        >>> index.add(Pattern("a"), 1), index.add(Pattern("a"), 1), len(index)
        (True, False, 1)
        """
        if pattern.own:
            self.add(_private(pattern), value)
        node = self._root
        for part in pattern.parts:
            node = node.children.get(part) or node.grow(part)
        if value in node.values:
            return False
        self._added += 1
        self._size += 1
        node.values[value] = self._added
        self._forget()
        return True

    def remove(self, pattern: Pattern, value: T) -> bool:
        """Remove a value from under a pattern; False if it was not there.

        >>> index: TopicIndex[int] = TopicIndex()
        >>> index.add(Pattern("a"), 1), index.remove(Pattern("a"), 1), index.remove(Pattern("a"), 1)
        (True, True, False)
        """
        if pattern.own:
            self.remove(_private(pattern), value)
        trail = [self._root]
        for part in pattern.parts:
            child = trail[-1].children.get(part)
            if child is None:
                return False
            trail.append(child)
        if trail[-1].values.pop(value, None) is None:
            return False
        for node, part in zip(reversed(trail[:-1]), reversed(pattern.parts), strict=True):
            node.prune(part)
        self._size -= 1
        self._forget()
        return True

    def match(self, topic: str) -> tuple[T, ...]:
        """The values of all patterns that match.

        >>> TopicIndex[int]().match("a/b")
        ()
        """
        found = self._cache.get(topic)
        return self._remember(topic, self._walk(topic)) if found is None else found

    def _walk(self, topic: str) -> tuple[T, ...]:
        segments = topic.split("/")
        active = set(self._root.entered())
        if is_reserved(topic):  # no wildcard stands for the first segment
            ours = self._root.children.get(segments.pop(0))
            active = set() if ours is None else set(ours.entered())
        for segment in segments:
            active = {node for before in active for node in before.after(segment)}
        found = {number: value for node in active for value, number in node.values.items()}
        return tuple(dict.fromkeys(found[number] for number in sorted(found)))

    def _remember(self, topic: str, values: tuple[T, ...]) -> tuple[T, ...]:
        self._cached_values += 1 + len(values)
        self._cache[topic] = values
        while self._cached_values > self._cached_values_max:
            _, oldest = self._cache.popitem(last=False)
            self._cached_values -= 1 + len(oldest)
        return values

    def _forget(self) -> None:
        self._cache.clear()
        self._cached_values = 0


class _TrieNode(Generic[T]):
    """A node of the trie. Children with `$*` are also indexed by how a segment must begin and end."""

    __slots__ = ("children", "ends", "loops", "values")

    def __init__(self, loops: bool = False) -> None:
        self.children: dict[Part, _TrieNode[T]] = {}
        self.ends: dict[tuple[int, int], dict[tuple[str, str], dict[tuple[str, ...], _TrieNode[T]]]] = {}
        self.loops = loops  # reached by `**`, so any further segment leads back here
        self.values: dict[T, int] = {}

    def grow(self, part: Part) -> _TrieNode[T]:
        child = self.children[part] = _TrieNode(loops=part == REST)
        if isinstance(part, tuple):
            first, last = part[0], part[-1]
            by_text = self.ends.setdefault((len(first), len(last)), {})
            by_text.setdefault((first, last), {})[part] = child
        return child

    def prune(self, part: Part) -> None:
        """Drop an empty child, so that the index does not grow over time."""
        child = self.children[part]
        if child.values or child.children:
            return
        del self.children[part]
        if isinstance(part, tuple):
            lengths, texts = (len(part[0]), len(part[-1])), (part[0], part[-1])
            del self.ends[lengths][texts][part]
            if not self.ends[lengths][texts]:
                del self.ends[lengths][texts]
            if not self.ends[lengths]:
                del self.ends[lengths]

    def entered(self) -> Iterable[_TrieNode[T]]:
        """This node, and the one after `**`, which may stand for zero segments."""
        rest = self.children.get(REST)
        return (self,) if rest is None else (self, rest)

    def after(self, segment: str) -> Iterable[_TrieNode[T]]:
        """All nodes that one more segment leads to."""
        if child := self.children.get(segment):
            yield from child.entered()
        if segment.startswith(VERBATIM):
            return
        if self.loops:
            yield self
        if child := self.children.get(ANY):
            yield from child.entered()
        for (first, last), by_text in self.ends.items():
            texts = segment[:first], segment[len(segment) - last :]
            for pieces, child in by_text.get(texts, {}).items():
                if pieces_match(pieces, segment):
                    yield from child.entered()


def _private(pattern: Pattern) -> Pattern:
    """The private topics of a pattern, and some that do not match."""
    return Pattern(f"{pattern.own}**")
