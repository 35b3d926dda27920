"""Rules and the gate: the rights of users, and patterns that include others."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reknit.address import Address
from reknit.config import Config, SecuritySettings
from reknit.credentials import NO_CREDENTIALS, Credentials
from reknit.errors import InvalidConfig, InvalidTopic
from reknit.topic import Pattern
from reknit.trust.gate import Gate
from reknit.trust.identities import Unauthenticated
from reknit.trust.rules import ANONYMOUS, ITSELF, Rules
from tests.tokens import write_tokens

RULES = Rules(
    [
        "ann publish plant/**",
        "ann subscribe //vcu/FFFF0010/1/FFFF",
        "* subscribe chat/*",
        "anonymous publish lobby",
        "bob as //vcu/10/1/FFFF",
        "bob as /20/1/0",
        "root admin",
    ]
)


@pytest.mark.parametrize(
    ("name", "verb", "wanted", "may"),
    [
        ("ann", "publish", "plant/7/temp", True),
        ("ann", "publish", "plant", True),
        ("ann", "publish", "chat/1", False),
        ("bob", "publish", "plant/7", False),
        ("ann", "subscribe", "plant/7", False),
        ("ann", "subscribe", "up/vcu/10/3/1/8001", True),
        ("ann", "subscribe", "up/vcu/10/*/1/*", True),
        ("ann", "subscribe", "up/vcu/11/0/1/8001", False),
        ("ann", "subscribe", "up/vcu/**", False),
        ("bob", "subscribe", "chat/1", True),
        ("bob", "subscribe", "chat/*", True),
        ("bob", "subscribe", "chat/**", False),
        ("bob", "subscribe", "**", False),
        (ANONYMOUS, "subscribe", "chat/1", True),
        (ANONYMOUS, "publish", "lobby", True),
        ("ann", "publish", "lobby", False),
        (ITSELF, "publish", "anything", True),
        (ITSELF, "subscribe", "**", True),
    ],
)
def test_a_rule_allows_what_it_includes_and_nothing_else(
    name: str, verb: str, wanted: str, may: bool
) -> None:
    assert RULES.may(name, verb, Pattern(wanted)) == may


@pytest.mark.parametrize(
    ("name", "address", "may"),
    [
        ("bob", "//vcu/10/1/8001", True),
        ("bob", "/20/1/0", True),
        ("bob", "//vcu/11/1/8001", False),
        ("ann", "//vcu/10/1/8001", False),
        (ANONYMOUS, "/20/1/0", False),
        (ITSELF, "/1/1/1", True),
    ],
)
def test_a_name_may_only_be_the_addresses_of_its_rules(name: str, address: str, may: bool) -> None:
    assert RULES.may_be(name, Address.parse(address)) == may


def gate(tmp_path: Path, *allow: str) -> Gate:
    tokens = write_tokens(tmp_path / "tokens", {"ann": "a-token", "bob": "b-token"})
    return Gate(Config(security=SecuritySettings(tokens_file=tokens, allow=allow)))


def test_a_token_tells_a_name_and_an_unknown_one_tells_nobody(tmp_path: Path) -> None:
    some, someone = gate(tmp_path, "root admin"), Credentials(("cn:someone",))
    assert some.identify("a-token").name == "ann"
    assert some.identify("b-token", someone).name == "bob"
    for certified in (NO_CREDENTIALS, someone):
        with pytest.raises(Unauthenticated):
            some.identify("guess", certified)
    assert some.identify("").name == ANONYMOUS
    assert some.identify("", someone).name == "someone"


def test_tokens_without_rules_are_for_those_who_have_one(tmp_path: Path) -> None:
    some = gate(tmp_path)
    assert not some.is_open
    for name, may in (("ann", True), ("somebody with a certificate", True), (ANONYMOUS, False)):
        assert some.may_publish(name, "plant/a") == may
        assert some.may_subscribe(name, Pattern("**")) == may
        assert some.may_be(name, Address.parse("//vcu/10/1/8001")) == may
        assert some.is_admin(name) == may
        assert some.readable(name) == (None if may else ())


def test_without_rules_and_tokens_everyone_may_do_everything() -> None:
    some = Gate(Config())
    assert some.is_open
    assert some.may_publish(ANONYMOUS, "plant/a")
    assert some.readable(ANONYMOUS) is None
    assert some.may_observe(ANONYMOUS)


def test_who_may_read_everything_or_is_an_admin_may_observe(tmp_path: Path) -> None:
    some = gate(tmp_path, "ann subscribe **", "bob subscribe plant/**", "root admin")
    assert [name for name in ("ann", "bob", "root", ANONYMOUS) if some.may_observe(name)] == ["ann", "root"]


def test_the_nodes_own_topics_are_read_by_who_is_named_for_them(tmp_path: Path) -> None:
    some = gate(tmp_path, "ann subscribe **", "eye subscribe reknit/audit")
    names = ("ann", "eye", ITSELF)
    assert [name for name in names if some.may_read(name, "reknit/audit")] == ["eye", ITSELF]
    assert [name for name in names if some.may_subscribe(name, Pattern("reknit/**"))] == [ITSELF]
    assert some.may_subscribe("ann", Pattern("**"))
    readable = some.readable("ann")
    assert readable is not None
    assert not any(one.matches("reknit/audit") for one in readable)


def test_an_admin_is_who_a_rule_says() -> None:
    assert RULES.is_admin("root")
    assert RULES.is_admin(ITSELF)
    assert not RULES.is_admin("ann")


@pytest.mark.parametrize(
    "rule",
    [
        "ann",
        "ann publish",
        "ann eat plant/**",
        "ann publish a//b",
        "ann as plant",
        "ann admin **",
        "a publish b c",
    ],
)
def test_what_is_no_rule_is_refused_with_the_forms_that_there_are(rule: str) -> None:
    with pytest.raises(InvalidConfig, match="NAME publish"):
        Rules([rule])


segments = st.sampled_from(["a", "b", "ab", "aba", "@x", "*", "**", "$*b", "a$*", "a$*a"])
texts = st.lists(segments, min_size=1, max_size=5).map("/".join)
topics = st.lists(st.sampled_from(["a", "b", "ab", "aba", "abb", "@x"]), min_size=1, max_size=6).map("/".join)


@given(texts, texts, st.lists(topics, max_size=30))
def test_what_is_included_is_matched(one: str, two: str, several: list[str]) -> None:
    ours, theirs = Pattern(one), Pattern(two)
    if ours.includes(theirs):
        assert [t for t in several if theirs.matches(t) and not ours.matches(t)] == []


@given(texts)
def test_a_pattern_includes_itself_and_what_it_matches(text: str) -> None:
    pattern = Pattern(text)
    assert pattern.includes(pattern)
    if "@" not in text:
        assert Pattern("**").includes(pattern)


@given(texts, topics)
def test_including_a_topic_is_matching_it(text: str, topic: str) -> None:
    assert Pattern(text).includes(Pattern(topic)) == Pattern(text).matches(topic)


def test_including_costs_no_more_than_both_lengths() -> None:
    long = "/".join(["**", "a"] * 60)
    assert not Pattern(long + "/b").includes(Pattern("/".join("a" * 120)))


def test_a_pattern_that_is_none_is_not_compared() -> None:
    with pytest.raises(InvalidTopic):
        Pattern("a//b").includes(Pattern("a"))
