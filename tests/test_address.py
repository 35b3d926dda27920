"""Addresses: written, read and matched as uProtocol's specification says, and turned into topics and back."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from string import ascii_lowercase, digits

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reknit.address import Address
from reknit.errors import InvalidAddress
from reknit.topic import check_topic
from tests.envelope.vectors import MATCHES, NO_MATCHES, NO_URIS, URIS

names = st.text(ascii_lowercase + digits + "-._~", min_size=1, max_size=128)
literals = st.ip_addresses(v=6).map(lambda ip: f"[{ip}]")
authorities = st.one_of(st.just(""), st.just("*"), names, literals, st.ip_addresses(v=4).map(str))
numbers = st.tuples(
    st.one_of(st.integers(0, 0xFFFFFFFF), st.sampled_from([0, 1, 0xFFFF, 0xFFFF0001, 0xFFFFFFFF, 0x10001])),
    st.one_of(st.integers(0, 0xFF), st.sampled_from([1, 0xFF])),
    st.one_of(st.integers(0, 0xFFFF), st.sampled_from([0, 1, 0x7FFF, 0x8000, 0xFFFE, 0xFFFF])),
)
addresses = st.builds(lambda authority, three: Address(authority, *three), authorities, numbers)


@pytest.mark.parametrize(("authority", "entity", "version", "resource", "text"), URIS)
def test_uri_is_written_and_read_as_specified(
    authority: str, entity: int, version: int, resource: int, text: str
) -> None:
    address = Address(authority, entity, version, resource)
    assert str(address) == text
    assert Address.parse(text) == address


@pytest.mark.parametrize("text", NO_URIS)
def test_what_is_no_uri_is_refused(text: str) -> None:
    with pytest.raises(InvalidAddress):
        Address.parse(text)


@pytest.mark.parametrize(("text", "pattern"), MATCHES)
def test_address_matches_pattern(text: str, pattern: str) -> None:
    assert Address.parse(pattern).matches(Address.parse(text))
    assert Address.parse(pattern).pattern.matches(Address.parse(text).topic)


@pytest.mark.parametrize(("text", "pattern"), NO_MATCHES)
def test_address_does_not_match_pattern(text: str, pattern: str) -> None:
    assert not Address.parse(pattern).matches(Address.parse(text))
    assert not Address.parse(pattern).pattern.matches(Address.parse(text).topic)


@given(addresses)
def test_any_address_survives_being_written_and_read(address: Address) -> None:
    assert Address.parse(str(address)) == address
    assert Address.parse(str(address).removeprefix("up:")) == address
    path = str(address).rpartition(address.authority)[2] if address.authority else str(address)
    assert Address.parse(str(address).replace(path, path.lower())) == address


@given(addresses)
def test_any_address_survives_being_a_topic(address: Address) -> None:
    if address.is_pattern:
        with pytest.raises(InvalidAddress, match="wildcards"):
            _ = address.topic
    else:
        assert Address.from_topic(check_topic(address.topic)) == address


@given(addresses, addresses)
def test_a_pattern_of_topics_matches_as_the_pattern_of_addresses(pattern: Address, address: Address) -> None:
    """Whatever is a wildcard in one is one in the other."""
    mixed = Address(pattern.authority, pattern.entity, pattern.version, address.resource)
    for one in (pattern, mixed, address):
        if not address.is_pattern:
            assert one.pattern.matches(address.topic) == one.matches(address)


@pytest.mark.parametrize(
    "topic",
    [
        "plant/temp",
        "up/vcu/1/0/1",
        "up/vcu/01/0/1/8000",
        "up/vcu/1/0/1/abcd",
        "up/VCU/1/0/1/8000",
        "up/vcu/FFFF/0/1/8000",
        "up/*/1/0/1/8000",
        "up/vcu/1/0/1/8000/1",
        "up/vcu/10000/0/1/8000",
    ],
)
def test_a_topic_that_no_address_has_is_none(topic: str) -> None:
    with pytest.raises(InvalidAddress):
        Address.from_topic(topic)


def test_an_address_is_a_frozen_value() -> None:
    address = Address("vcu", 1, 1, 1)
    assert address == Address("vcu", 1, 1, 1)
    assert len({address, Address("vcu", 1, 1, 1)}) == 1
    with pytest.raises(FrozenInstanceError):
        address.entity = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    "fields", [("Vcu", 1, 1, 1), ("a" * 129, 1, 1, 1), ("", -1, 1, 1), ("", 1 << 32, 1, 1)]
)
def test_a_value_that_could_not_be_written_is_refused(fields: tuple[str, int, int, int]) -> None:
    with pytest.raises(InvalidAddress):
        Address(*fields)
