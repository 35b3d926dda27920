"""Topics, and patterns that match them.

A topic is concrete: segments joined by `/`. A pattern follows Zenoh's rules for key expressions:

    *     any one segment
    **    any number of segments, including zero
    $*    any characters inside one segment, including zero: `motor$*`, `$*-temp`
    @     a segment that begins with it matches only itself, never a wildcard

Topics below `reknit/` are the node's own: dead letters, the audit trail. A pattern includes them only if it begins with
`reknit/`, never by a wildcard, as `#` of MQTT does not include `$SYS`.

A pattern's text is normalized to Zenoh's canonical form, so that equal sets of topics have equal texts: `**/**`
becomes `**`, and `**/*` becomes `*/**`. Matching backtracks at most to the last `**`, so the worst pattern costs its
length times the topic's length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from reknit.errors import InvalidTopic

__all__ = [
    "TOPIC_BYTES_MAX",
    "Pattern",
    "check_topic",
    "is_reserved",
    "is_scheduled",
    "schedule_topic",
    "target_of",
]

TOPIC_BYTES_MAX = 255 * 4
"""The longest topic or pattern, in utf-8 bytes."""

ANY, REST, INSIDE = "*", "**", "$*"
VERBATIM = "@"
OURS = "reknit"
"""The first segment of topics that only nodes write on."""
RESERVED = f"{OURS}/"
SCHEDULED = f"{RESERVED}scheduled/"
"""Below this are the topics of events that are to be published later. Each names the topic that they are for."""

Part = str | tuple[str, ...]
"""One segment of a pattern: a literal, ANY, REST, or the pieces between the `$*`s."""

_REFUSED = re.compile(r"[?#\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_WILD = re.compile(r"[*$]")


def check_topic(text: str) -> str:
    """Returns a concrete topic unchanged, or raises `InvalidTopic`.

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


def is_reserved(topic: str) -> bool:
    """Whether only nodes write on a topic: dead letters and the audit trail are there.

    >>> is_reserved("reknit/audit"), is_reserved("reknits/a")
    (True, False)
    """
    return topic.startswith(RESERVED)


def is_scheduled(topic: str) -> bool:
    """Whether the events on a topic are to be published later, on another one that is not reserved.

    >>> is_scheduled("reknit/scheduled/orders"), is_scheduled("reknit/scheduled/reknit/audit")
    (True, False)
    """
    return topic.startswith(SCHEDULED) and not is_reserved(topic.removeprefix(SCHEDULED))


def schedule_topic(topic: str) -> str:
    """Where events that are to be published on a topic later are stored until then.

    >>> schedule_topic("orders/new")
    'reknit/scheduled/orders/new'
    """
    return SCHEDULED + topic


def target_of(topic: str) -> str:
    """The topic on which events are published that are published on this one.

    >>> target_of("reknit/scheduled/orders/new"), target_of("orders/new")
    ('orders/new', 'orders/new')
    """
    return topic.removeprefix(SCHEDULED) if is_scheduled(topic) else topic


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
    """A set of topics, written as a Zenoh key expression. The text is canonical; patterns with equal texts are equal.

    >>> Pattern("plant/*/temp").matches("plant/7/temp")
    True
    >>> Pattern("plant/**/**").text
    'plant/**'
    """

    text: str
    own: str = field(default="", repr=False)
    """Topics that begin with this match too, if the rest of them does: see `reknit.private_topics`."""
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

    @property
    def prefix(self) -> str:
        """Every topic that matches begins with this text.

        >>> Pattern("plant/*/temp").prefix, Pattern("plant/7").prefix, Pattern("plant/m$*").prefix
        ('plant', 'plant/7', 'plant/m')
        """
        return _WILD.split(self.text, maxsplit=1)[0].removesuffix("/") if not self.is_topic else self.text

    def matches(self, topic: str) -> bool:
        """True if the topic is in this set.

        >>> Pattern("plant/**").matches("plant"), Pattern("m$*r").matches("motor")
        (True, True)
        >>> Pattern("**").matches("@admin"), Pattern("@admin/*").matches("@admin/log")
        (False, True)
        >>> Pattern("**").matches("reknit/audit"), Pattern("reknit/*").matches("reknit/audit")
        (False, True)
        >>> Pattern("plant/*", own="reknit/redriven/audit/").matches("reknit/redriven/audit/plant/a")
        True
        """
        if self.text == topic:
            return True
        if self.own and topic.startswith(self.own):
            return self.matches(topic[len(self.own) :])
        if self.is_topic or (is_reserved(topic) and self.parts[0] != OURS):
            return False
        return _matches(self.parts, topic.split("/"))

    def matching(self, topics: Iterable[str]) -> list[str]:
        """Those of many topics that match, in their order: quicker than one by one.

        >>> Pattern("plant/*").matching(["car/1", "plant/b", "plant/a"])
        ['plant/b', 'plant/a']
        """
        if self.own:
            return self._matching_own(topics)
        if self.parts.count(REST) > 1:  # an expression would try every way to share the segments among them
            return [topic for topic in topics if self.matches(topic)]
        return list(filter(_expression(self.parts).fullmatch, topics))

    def _matching_own(self, topics: Iterable[str]) -> list[str]:
        """The same where private topics match, too."""
        several, size = list(topics), len(self.own)
        others = Pattern(self.text).matching(several)
        mine = {topic for topic in several if topic.startswith(self.own) and self.matches(topic[size:])}
        if not mine:
            return others
        mine.update(others)
        return [topic for topic in several if topic in mine]

    def intersects(self, other: Pattern) -> bool:
        """True if some topic matches both.

        >>> Pattern("a/*").intersects(Pattern("*/b")), Pattern("a/**").intersects(Pattern("b/**"))
        (True, False)
        """
        ones, twos = self.parts, other.parts
        if (ones[0] == OURS) != (twos[0] == OURS):
            return self.matches(OURS) and other.matches(OURS)
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
        """True if every topic that matches the other matches this one too. False where this can't be decided.

        >>> Pattern("a/**").includes(Pattern("a/*/b")), Pattern("a/*").includes(Pattern("a/**"))
        (True, False)
        """
        ours, theirs = self.parts, other.parts
        if theirs[0] == OURS != ours[0]:
            return other.text == OURS and self.matches(OURS)
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
    """Match each `**` with as few segments as possible; backtrack only to the last one."""
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
    return pieces_match(part, segment) if isinstance(part, tuple) else part in (ANY, REST)


@lru_cache(maxsize=1024)
def _expression(parts: tuple[Part, ...]) -> re.Pattern[str]:
    """A regular expression for a pattern with at most one `**`."""
    allowed = "" if parts[0] == OURS else f"(?!{RESERVED})"
    return re.compile(allowed + _parts_expression(parts))


def _parts_expression(parts: tuple[Part, ...]) -> str:
    texts = [_segment_expression(part) for part in parts]
    if REST not in parts:
        return "/".join(texts)
    at, any_one = parts.index(REST), _segment_expression(ANY)
    before, after = texts[:at], texts[at + 1 :]
    if after:
        return "".join(f"{text}/" for text in before) + f"(?:{any_one}/)*" + "/".join(after)
    if before:
        return "/".join(before) + f"(?:/{any_one})*"
    return f"{any_one}(?:/{any_one})*"


def _segment_expression(part: Part) -> str:
    """The same for one segment. A piece between two `$*` is taken where it comes first, and not looked for again."""
    if part == ANY:
        return f"(?!{VERBATIM})[^/]++"
    if isinstance(part, str):
        return re.escape(part)
    first, *middle, last = map(re.escape, part)
    found = "".join(f"(?>[^/]*?{piece})" for piece in middle)
    return f"(?!{VERBATIM}){first}{found}[^/]*{last}(?![^/])"


def pieces_match(pieces: Sequence[str], segment: str) -> bool:
    """Whether a segment consists of these pieces, in order, with anything between them.

    >>> pieces_match(("mo", "r"), "motor")
    True
    """
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
    """The next places in two patterns: after one more segment that both match, or after a `**` ends."""
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
    # Both have a `$*`, which matches anything between the other's ends: only the ends can disagree.
    begins = one[0].startswith(two[0]) or two[0].startswith(one[0])
    return begins and (one[-1].endswith(two[-1]) or two[-1].endswith(one[-1]))


def _include(ours: Sequence[Part], theirs: Sequence[Part], at: int, by: int) -> Iterable[tuple[int, int]]:
    """The next places in two patterns: if ours includes theirs from one of them on, it does so here."""
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
    return one == ANY or (isinstance(one, tuple) and isinstance(two, str) and pieces_match(one, two))
