from __future__ import annotations

import pickle
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reknit.errors import InvalidTopic
from reknit.topic import TOPIC_BYTES_MAX, Pattern, check_topic
from reknit.topic_index import TopicIndex

SEGMENTS = ["a", "b", "ab", "ba", "aab", "@a", "b@", "reknit"]
PARTS = [*SEGMENTS, "rek$*", "*", "**", "a$*", "$*b", "a$*b", "$*a$*", "b$*a$*b", "$*", "$*@", "a$*$*"]

topics = st.lists(st.sampled_from(SEGMENTS), min_size=1, max_size=6).map("/".join)
pattern_texts = st.lists(st.sampled_from(PARTS), min_size=1, max_size=6).map("/".join)


# -- plain models, straight from the rules


def segment_matches(part: str, segment: str) -> bool:
    if segment.startswith("@"):
        return part == segment
    return part == "*" or inside_matches(part, segment)


def inside_matches(part: str, text: str) -> bool:
    if part.startswith("$*"):
        return inside_matches(part[2:], text) or (text != "" and inside_matches(part, text[1:]))
    return part == text or (part[:1] == text[:1] != "" and inside_matches(part[1:], text[1:]))


def names_ours(parts: Sequence[str]) -> bool:
    return list(parts[:1]) == ["reknit"]


def matches_any(parts: Sequence[str], segments: Sequence[str]) -> bool:
    """Topics below `reknit/` are named by their first segment, or not at all."""
    is_ours = names_ours(segments) and len(segments) > 1
    return (not is_ours or names_ours(parts)) and matches(parts, segments)


def matches(parts: Sequence[str], segments: Sequence[str]) -> bool:
    if not parts:
        return not segments
    if parts[0] == "**":
        more = bool(segments) and not segments[0].startswith("@") and matches(parts, segments[1:])
        return more or matches(parts[1:], segments)
    return bool(segments) and segment_matches(parts[0], segments[0]) and matches(parts[1:], segments[1:])


def segments_meet(one: str, two: str) -> bool:
    if one.startswith("@") or two.startswith("@"):
        return one == two
    wild = ("*", "**")
    return inside_meets("$*" if one in wild else one, "$*" if two in wild else two)


def inside_meets(one: str, two: str) -> bool:
    if not one and not two:
        return True
    if one.startswith("$*") and inside_meets(one[2:], two):
        return True
    if two.startswith("$*") and inside_meets(one, two[2:]):
        return True
    if one.startswith("$*"):
        return bool(two) and not two.startswith("$*") and inside_meets(one, two[1:])
    if two.startswith("$*"):
        return bool(one) and inside_meets(one[1:], two)
    return one[:1] == two[:1] and inside_meets(one[1:], two[1:])


def meets_any(ones: Sequence[str], twos: Sequence[str]) -> bool:
    if names_ours(ones) != names_ours(twos):
        return matches(ones, ["reknit"]) and matches(twos, ["reknit"])
    return meets(ones, twos)


def meets(ones: Sequence[str], twos: Sequence[str]) -> bool:
    if not ones and not twos:
        return True
    if (ones and ones[0] == "**" and meets(ones[1:], twos)) or (
        twos and twos[0] == "**" and meets(ones, twos[1:])
    ):
        return True
    if not ones or not twos or not segments_meet(ones[0], twos[0]) or ones[0] == twos[0] == "**":
        return False
    return meets(ones[ones[0] != "**" :], twos[twos[0] != "**" :])


# -- topics


@pytest.mark.parametrize(
    "text", ["a", "a/b", "@a/b", "über/ß", "a b", "a.b/c-d", "a" * TOPIC_BYTES_MAX, "ü" * 510]
)
def test_a_concrete_topic_is_given_back(text: str) -> None:
    assert check_topic(text) is text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        ("/a", "empty segment"),
        ("a/", "empty segment"),
        ("a//b", "empty segment"),
        ("a/*", r"has '\*' at 2; wildcards belong in a pattern"),
        ("a$*", r"has '\$' at 1"),
        ("a?b", r"has '\?' at 1"),
        ("a#b", "has '#' at 1"),
        ("a\nb", r"has '\\n' at 1"),
        ("a\x7f", r"has '\\x7f' at 1"),
        ("a\x85", r"has '\\x85' at 1"),
        ("a\ud800", r"has '\\ud800' at 1"),
        ("a" * (TOPIC_BYTES_MAX + 1), "has 1021 bytes; shorten it to 1020"),
        ("ü" * 511, "has 1022 bytes"),
    ],
)
def test_what_is_no_topic_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(InvalidTopic, match=why):
        check_topic(text)


@given(st.text(max_size=12))
def test_a_topic_matches_itself_as_a_pattern_or_is_refused(text: str) -> None:
    try:
        check_topic(text)
    except InvalidTopic:
        return
    assert Pattern(text).is_topic
    assert Pattern(text).matches(text)
    text.encode()


# -- patterns


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "pattern '' is empty"),
        ("a//**", "empty segment"),
        ("a*", r"stray wildcard in 'a\*'"),
        ("***", "stray wildcard"),
        ("$", "stray wildcard"),
        ("a$b", "stray wildcard"),
        ("$**", "stray wildcard"),
        ("a/$$*", "stray wildcard"),
        ("@a$*", "only by itself"),
        ("a?", r"'\?' at 1"),
    ],
)
def test_what_is_no_pattern_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(InvalidTopic, match=why):
        Pattern(text)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("**/**", "**"),
        ("**/*", "*/**"),
        ("a/**/*/**/*/b", "a/*/*/**/b"),
        ("$*", "*"),
        ("$*$*", "*"),
        ("a$*$*b", "a$*b"),
        ("**/$*", "*/**"),
        ("a/*/**", "a/*/**"),
    ],
)
def test_a_pattern_has_one_text(text: str, canonical: str) -> None:
    assert Pattern(text).text == canonical
    assert Pattern(text) == Pattern(canonical)
    assert hash(Pattern(text)) == hash(Pattern(canonical))


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("plant/*/temp", "plant/7/temp", True),
        ("plant/*/temp", "plant/temp", False),
        ("plant/*/temp", "plant/7/8/temp", False),
        ("plant/**", "plant", True),
        ("plant/**", "plants", False),
        ("**/temp", "temp", True),
        ("p/**/q/**/r", "p/q/r", True),
        ("p/**/q/*/r/*", "p/1/q/2/3/q/4/r/5", True),
        ("p/**/q/*/r/*", "p/1/q/2/3/q/4/4/r/5", False),
        ("pump$*", "pump", True),
        ("pu$*mp", "pump", True),
        ("pum$*ump", "pump", False),
        ("$*-$*-$*", "x-y", False),
        ("$*-$*-$*", "--", True),
        ("*", "@a", False),
        ("**", "x/@a/y", False),
        ("**/@a/**", "x/@a/y", True),
        ("$*a", "@a", False),
    ],
)
def test_wildcards_match_as_zenoh_says(pattern: str, topic: str, expected: bool) -> None:
    assert Pattern(pattern).matches(topic) is expected


@given(pattern_texts, topics)
def test_matching_agrees_with_the_plain_model(text: str, topic: str) -> None:
    assert Pattern(text).matches(topic) == matches_any(text.split("/"), topic.split("/"))


@given(pattern_texts, st.lists(topics, max_size=8))
def test_many_topics_match_as_each_of_them(text: str, several: list[str]) -> None:
    pattern = Pattern(text)
    assert pattern.matching(several) == [topic for topic in several if pattern.matches(topic)]


@given(pattern_texts, topics)
def test_what_matches_begins_with_the_prefix(text: str, topic: str) -> None:
    pattern = Pattern(text)
    assert topic.startswith(pattern.prefix) or not pattern.matches(topic)


@given(pattern_texts, pattern_texts)
def test_intersection_agrees_with_the_plain_model(one: str, two: str) -> None:
    expected = meets_any(one.split("/"), two.split("/"))
    assert Pattern(one).intersects(Pattern(two)) == expected
    assert Pattern(two).intersects(Pattern(one)) == expected


@given(pattern_texts, pattern_texts, topics)
def test_patterns_that_match_one_topic_intersect(one: str, two: str, topic: str) -> None:
    if Pattern(one).matches(topic) and Pattern(two).matches(topic):
        assert Pattern(one).intersects(Pattern(two))
    assert Pattern(one).intersects(Pattern(topic)) == Pattern(one).matches(topic)


@given(pattern_texts, pattern_texts, topics)
def test_a_pattern_that_includes_another_matches_all_its_topics(one: str, two: str, topic: str) -> None:
    if Pattern(one).includes(Pattern(two)) and Pattern(two).matches(topic):
        assert Pattern(one).matches(topic)


@pytest.mark.parametrize(
    "text", ["**", "*/**", "*/audit", "**/audit", "$*/audit", "rek$*/audit", "**/reknit/audit"]
)
def test_no_wildcard_stands_for_the_nodes_own_topics(text: str) -> None:
    wild, named = Pattern(text), Pattern("reknit/audit")
    index: TopicIndex[str] = TopicIndex()
    index.add(wild, "wild")
    index.add(Pattern("reknit/**"), "named")
    assert (wild.matches("reknit/audit"), wild.includes(named), wild.intersects(named)) == (False,) * 3
    assert index.match("reknit/audit") == ("named",)
    assert Pattern("reknit/*").includes(named)


def test_a_hostile_pattern_is_answered() -> None:
    rests = Pattern("/".join(["**", "a"] * 150 + ["b"]))
    assert not rests.matches("/".join(["a"] * 500))
    insides = Pattern("$*".join(["a"] * 300) + "b")
    assert not insides.matches("a" * 1000)
    assert not insides.matching(["a" * 1000]) + rests.matching(["/".join(["a"] * 500)])
    assert not Pattern("**/" + "$*".join(["a"] * 9) + "b").matching(["/".join(["a" * 50] * 20)])
    assert rests.intersects(Pattern("/".join(["a", "**"] * 150 + ["b"])))


def test_a_pattern_survives_pickling_and_is_frozen() -> None:
    pattern = Pattern("a/$*b/**")
    again = pickle.loads(pickle.dumps(pattern))
    assert again == pattern
    assert again.matches("a/xb/y")
    assert str(pattern) == "a/$*b/**"
    with pytest.raises(AttributeError):
        pattern.text = "b"  # type: ignore[misc]


# -- the index

steps = st.lists(st.tuples(st.sampled_from("++-"), pattern_texts, st.integers(0, 3)), max_size=25)


@given(steps, st.lists(topics, min_size=1, max_size=4))
def test_the_index_agrees_with_a_loop_over_patterns(
    changes: list[tuple[str, str, int]], asked: list[str]
) -> None:
    index: TopicIndex[int] = TopicIndex(cached_values_max=8)
    model: list[tuple[Pattern, int]] = []
    for sign, text, value in changes:
        entry = (Pattern(text), value)
        if sign == "+":
            assert index.add(*entry) == (entry not in model)
            model += [entry] if entry not in model else []
        else:
            assert index.remove(*entry) == (entry in model)
            model = [kept for kept in model if kept != entry]
        for topic in asked + asked:
            expected = dict.fromkeys(value for pattern, value in model if pattern.matches(topic))
            assert index.match(topic) == tuple(expected)
    assert len(index) == len(model)


@given(st.lists(st.tuples(pattern_texts, st.integers(0, 3)), max_size=12))
def test_an_emptied_index_holds_nothing(entries: list[tuple[str, int]]) -> None:
    index: TopicIndex[int] = TopicIndex()
    for text, value in entries:
        index.add(Pattern(text), value)
    for text, value in entries:
        index.remove(Pattern(text), value)
    assert len(index) == 0
    assert not index._root.children
    assert not index._root.ends


def test_the_cache_is_bounded_and_a_huge_answer_is_still_given() -> None:
    index: TopicIndex[int] = TopicIndex(cached_values_max=10)
    for value in range(50):
        index.add(Pattern("big"), value)
    index.add(Pattern("s/*"), 99)
    assert index.match("big") == index.match("big") == tuple(range(50))
    for number in range(100):
        assert index.match(f"s/{number}") == (99,)
    assert index._cached_values <= 10
    assert len(index._cache) <= 5


def test_many_patterns_side_by_side_are_told_apart() -> None:
    index: TopicIndex[int] = TopicIndex(cached_values_max=0)
    for number in range(5_000):
        index.add(Pattern(f"plant/{number}/*/temp"), number)
        index.add(Pattern(f"plant/m{number}$*/**"), number)
        index.add(Pattern(f"plant/$*x{number}/**"), number)
    assert index.match("plant/77/a/temp") == (77,)
    assert index.match("plant/m42-x43/a") == (4, 42, 43)
