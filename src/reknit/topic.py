"""Topics, patterns that match them, and an index of patterns.

A topic is concrete: segments with `/` between. A pattern follows Zenoh's rules for key expressions:

    *     any one segment
    **    any number of segments, also none
    $*    any characters inside one segment, also none: `motor$*`, `$*-temp`
    @     a segment that begins with it is only matched by itself, never by a wildcard

A pattern's text is brought into Zenoh's canonical form, so that equal sets of topics are equal texts: `**/**`
becomes `**`, and `**/*` becomes `*/**`. No match goes back further than to the last `**`, so the worst
pattern costs its length times the topic's.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from reknit.errors import InvalidTopic

__all__ = ["TOPIC_BYTES_MAX", "Pattern", "TopicIndex", "check_topic"]

TOPIC_BYTES_MAX = 255 * 4
"""The longest topic or pattern, in utf-8 bytes."""

ANY, REST, INSIDE = "*", "**", "$*"
VERBATIM = "@"

Part = str | tuple[str, ...]
"""One segment of a pattern: a literal, ANY, REST, or the pieces between the `$*`s."""

T = TypeVar("T", bound=Hashable)

_REFUSED = re.compile(r"[?#\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_WILD = re.compile(r"[*$]")


def check_topic(text: str) -> str:
    """Give a concrete topic back as it is, or raise InvalidTopic with what is wrong.

    >>> check_topic("plant/7/temp")
    'plant/7/temp'
    >>> check_topic("plant/*/temp")
    Traceback (most recent call last):
    reknit.errors.InvalidTopic: topic 'plant/*/temp' has '*' at 6; wildcards belong in a pattern
    """
    _check(text, "topic")
    if wild := _WILD.search(text):
        raise InvalidTopic(text, f"has {wild[0]!r} at {wild.start()}; wildcards belong in a pattern")
    return text


def _check(text: str, kind: str) -> None:
    if refused := _REFUSED.search(text):
        why = f"has {refused[0]!r} at {refused.start()}; leave out '?', '#' and control characters"
    elif not text:
        why = "is empty; name at least one segment, as in 'plant/temp'"
    elif text[0] == "/" or text[-1] == "/" or "//" in text:
        why = "has an empty segment; put one '/' between segments and none at the ends"
    elif len(text) * 4 > TOPIC_BYTES_MAX and (size := len(text.encode())) > TOPIC_BYTES_MAX:
        why = f"has {size} bytes; shorten it to {TOPIC_BYTES_MAX}"
    else:
        return
    raise InvalidTopic(text, why, kind)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A set of topics, written as a Zenoh key expression. Its text is canonical, equality is the text's.

    >>> Pattern("plant/*/temp").matches("plant/7/temp")
    True
    >>> Pattern("plant/**/**").text
    'plant/**'
    """

    text: str
    parts: tuple[Part, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self.text, "pattern")
        segments = _canonical([_canonical_segment(self.text, one) for one in self.text.split("/")])
        object.__setattr__(self, "text", "/".join(segments))
        object.__setattr__(self, "parts", tuple(_part(segment) for segment in segments))

    def __str__(self) -> str:
        return self.text

    @property
    def is_topic(self) -> bool:
        """True if there is no wildcard, so that exactly one topic matches.

        >>> Pattern("plant/7").is_topic, Pattern("plant/*").is_topic
        (True, False)
        """
        return "*" not in self.text

    def matches(self, topic: str) -> bool:
        """True if the concrete topic is in this set.

        >>> Pattern("plant/**").matches("plant"), Pattern("m$*r").matches("motor")
        (True, True)
        >>> Pattern("**").matches("@admin"), Pattern("@admin/*").matches("@admin/log")
        (False, True)
        """
        return self.text == topic or (not self.is_topic and _matches(self.parts, topic.split("/")))

    def intersects(self, other: Pattern) -> bool:
        """True if some topic matches both.

        >>> Pattern("a/*").intersects(Pattern("*/b")), Pattern("a/**").intersects(Pattern("b/**"))
        (True, False)
        """
        ones, twos = self.parts, other.parts
        seen, todo = {(0, 0)}, [(0, 0)]
        while todo:
            at = todo.pop()
            if at == (len(ones), len(twos)):
                return True
            for after in _advance(ones, twos, *at):
                if after not in seen:
                    seen.add(after)
                    todo.append(after)
        return False

    def includes(self, other: Pattern) -> bool:
        """True if every topic that matches the other matches this one too; where that can't be seen, False.

        >>> Pattern("a/**").includes(Pattern("a/*/b")), Pattern("a/*").includes(Pattern("a/**"))
        (True, False)
        """
        ours, theirs = self.parts, other.parts
        seen, todo = {(0, 0)}, [(0, 0)]
        while todo:
            at = todo.pop()
            if at == (len(ours), len(theirs)):
                return True
            for after in _include(ours, theirs, *at):
                if after not in seen:
                    seen.add(after)
                    todo.append(after)
        return False


class TopicIndex(Generic[T]):
    """Values under patterns; `match` gives those whose pattern matches a topic, each once, oldest first.

    A trie by segments, walked once for all patterns; a topic asked for again comes from a bounded cache.

    >>> index: TopicIndex[str] = TopicIndex()
    >>> index.add(Pattern("plant/*/temp"), "ann"), index.add(Pattern("**"), "bob")
    (True, True)
    >>> index.match("plant/7/temp"), index.match("car/1")
    (('ann', 'bob'), ('bob',))
    """

    def __init__(self, cached_values_max: int = 262_144) -> None:
        self._root: _Node[T] = _Node()
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
        """Take a value from under a pattern; False if it was not there.

        >>> index: TopicIndex[int] = TopicIndex()
        >>> index.add(Pattern("a"), 1), index.remove(Pattern("a"), 1), index.remove(Pattern("a"), 1)
        (True, True, False)
        """
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
        active = set(self._root.entered())
        for segment in topic.split("/"):
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


class _Node(Generic[T]):
    """A place in the trie. Children with `$*` are also kept by how a segment must begin and end."""

    __slots__ = ("children", "ends", "loops", "values")

    def __init__(self, loops: bool = False) -> None:
        self.children: dict[Part, _Node[T]] = {}
        self.ends: dict[tuple[int, int], dict[tuple[str, str], dict[tuple[str, ...], _Node[T]]]] = {}
        self.loops = loops  # reached by `**`, so it stays where it is on any further segment
        self.values: dict[T, int] = {}

    def grow(self, part: Part) -> _Node[T]:
        child = self.children[part] = _Node(loops=part == REST)
        if isinstance(part, tuple):
            first, last = part[0], part[-1]
            by_text = self.ends.setdefault((len(first), len(last)), {})
            by_text.setdefault((first, last), {})[part] = child
        return child

    def prune(self, part: Part) -> None:
        """Drop a child that leads nowhere, so that an index that is used for long does not grow."""
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

    def entered(self) -> Iterable[_Node[T]]:
        """This node, and the one behind `**`, which may stand for no segment."""
        rest = self.children.get(REST)
        return (self,) if rest is None else (self, rest)

    def after(self, segment: str) -> Iterable[_Node[T]]:
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
                if _pieces_match(pieces, segment):
                    yield from child.entered()


def _canonical_segment(text: str, segment: str) -> str:
    if segment in (ANY, REST):
        return segment
    pieces = segment.split(INSIDE)
    if any(_WILD.search(piece) for piece in pieces):
        why = f"has a stray wildcard in {segment!r}; write '*' or '**' as a whole segment, '$*' inside one"
        raise InvalidTopic(text, why, "pattern")
    if len(pieces) > 1 and segment.startswith(VERBATIM):
        why = f"has a wildcard in {segment!r}; a segment that begins with '@' is matched only by itself"
        raise InvalidTopic(text, why, "pattern")
    pieces[1:-1] = [piece for piece in pieces[1:-1] if piece]
    return ANY if pieces == ["", ""] else INSIDE.join(pieces)


def _canonical(segments: Iterable[str]) -> list[str]:
    """In a run of wildcard segments every `*` comes first, then at most one `**`."""
    done: list[str] = []
    for segment in segments:
        if done and done[-1] == REST and segment in (ANY, REST):
            done[-1:] = [segment, REST] if segment == ANY else [REST]
        else:
            done.append(segment)
    return done


def _part(segment: str) -> Part:
    return tuple(segment.split(INSIDE)) if INSIDE in segment else segment


def _matches(parts: Sequence[Part], segments: Sequence[str]) -> bool:
    """Try each `**` with as few segments as possible; only the last one passed is ever tried with more."""
    at = now = 0
    retry, taken = -1, 0
    while now < len(segments):
        if at < len(parts) and parts[at] == REST:
            at = retry = at + 1
            taken = now
        elif at < len(parts) and _part_matches(parts[at], segments[now]):
            at, now = at + 1, now + 1
        elif retry < 0 or segments[taken].startswith(VERBATIM):
            return False
        else:
            taken += 1
            at, now = retry, taken
    return all(part == REST for part in parts[at:])


def _part_matches(part: Part, segment: str) -> bool:
    if part == segment:
        return True
    if segment.startswith(VERBATIM):
        return False
    return _pieces_match(part, segment) if isinstance(part, tuple) else part in (ANY, REST)


def _pieces_match(pieces: Sequence[str], segment: str) -> bool:
    first, last = pieces[0], pieces[-1]
    at, stop = len(first), len(segment) - len(last)
    if at > stop or not (segment.startswith(first) and segment.endswith(last)):
        return False
    for piece in pieces[1:-1]:
        found = segment.find(piece, at, stop)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def _advance(ones: Sequence[Part], twos: Sequence[Part], at: int, by: int) -> Iterable[tuple[int, int]]:
    """Where two patterns can be after one more segment that both match, or after a `**` that ends."""
    one = ones[at] if at < len(ones) else None
    two = twos[by] if by < len(twos) else None
    if one == REST:
        yield at + 1, by
    if two == REST:
        yield at, by + 1
    if one is not None and two is not None and _parts_meet(one, two):
        yield at + (one != REST), by + (two != REST)


def _parts_meet(one: Part, two: Part) -> bool:
    for part, other in ((one, two), (two, one)):
        if isinstance(part, str) and part not in (ANY, REST):
            return _part_matches(other, part)
    if isinstance(one, str) or isinstance(two, str):
        return True
    # Both have a `$*`, which takes in all that the other has between its ends: only the ends can disagree.
    begins = one[0].startswith(two[0]) or two[0].startswith(one[0])
    return begins and (one[-1].endswith(two[-1]) or two[-1].endswith(one[-1]))


def _include(ours: Sequence[Part], theirs: Sequence[Part], at: int, by: int) -> Iterable[tuple[int, int]]:
    """Where two patterns can be compared next, so that from there on ours includes theirs: one way is enough."""
    one = ours[at] if at < len(ours) else None
    two = theirs[by] if by < len(theirs) else None
    if one == REST:
        if two is not None and not (isinstance(two, str) and two.startswith(VERBATIM)):
            yield at, by + 1
        if two != REST:
            yield at + 1, by
    elif one is not None and two is not None and two != REST and _part_includes(one, two):
        yield at + 1, by + 1


def _part_includes(one: Part, two: Part) -> bool:
    if one == two:
        return True
    if isinstance(two, str) and (two == ANY or two.startswith(VERBATIM)):
        return False
    return one == ANY or (isinstance(one, tuple) and isinstance(two, str) and _pieces_match(one, two))
