"""Sealed datagrams: what is accepted, and everything that is not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from reknit.protocol.sealing import seal as seal_module
from reknit.protocol.sealing.ciphers import EPOCH_BITS
from reknit.protocol.sealing.seal import EPOCH_MASK, Seal, Verdict
from reknit.protocol.sealing.shared_keys import SharedKeys
from reknit.wire.bundle import ENVELOPE, MAGIC, VERSION, Datagram
from reknit.wire.sealed import SEAL_BYTES, SEALED_HEAD, to_member

GROUP = 7
ANN, BOB, CARL = (bytes([letter]) * 16 for letter in b"abc")
OLD, NEW, OTHER = ("11" * 32, "22" * 32, "33" * 32)


def keys(*secrets: str) -> SharedKeys:
    return SharedKeys.parse("\n".join(secrets))


def plain(sender: bytes = ANN, items: bytes = b"items", stable: int = 3, group: int = GROUP) -> Datagram:
    return [ENVELOPE.pack(MAGIC, VERSION, 0, 0, group, sender, stable), items]


def sealed(seal: Seal, datagram: Datagram, to: bytes | None = None) -> bytes:
    [one] = seal.seal([datagram], 0 if to is None else to_member(to))
    return b"".join(one)


def member(me: bytes, *secrets: str) -> Seal:
    return Seal(GROUP, me, keys(*secrets or (OLD,)))


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=4), st.integers(0, 1 << 63))
def test_a_member_reads_what_another_one_sealed(parts: list[bytes], stable: int) -> None:
    envelope = plain(stable=stable)[0]
    data = sealed(member(ANN), [envelope, *parts])
    opened = member(BOB).open(data)
    assert opened == (Verdict.ACCEPTED, ANN, stable, b"".join(parts))
    assert len(data) == ENVELOPE.size + sum(map(len, parts)) + SEAL_BYTES


def test_nothing_of_an_event_can_be_read_on_the_network() -> None:
    assert b"secret" not in sealed(member(ANN), plain(items=b"a secret thing"))


@given(st.data())
def test_a_datagram_that_was_changed_anywhere_is_never_accepted(data: st.DataObject) -> None:
    good = sealed(member(ANN), plain())
    at = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[at] ^= data.draw(st.integers(1, 255))
    bob = member(BOB)
    assert bob.open(bytes(bad)).verdict is not Verdict.ACCEPTED
    assert bob.open(good).verdict is Verdict.ACCEPTED, "a bad datagram has changed something"


@given(st.binary(max_size=200), st.integers(0, 200))
def test_any_bytes_and_any_part_of_a_datagram_are_refused(noise: bytes, length: int) -> None:
    bob, good = member(BOB), sealed(member(ANN), plain())
    assert bob.open(noise).verdict is not Verdict.ACCEPTED
    assert bob.open(memoryview(good)[: min(length, len(good) - 1)]).verdict is not Verdict.ACCEPTED
    assert bob.open(good + noise).verdict is (Verdict.FORGED if noise else Verdict.ACCEPTED)


def test_a_datagram_is_accepted_once() -> None:
    bob, good = member(BOB), sealed(member(ANN), plain())
    assert [bob.open(good).verdict for _ in range(3)] == [
        Verdict.ACCEPTED,
        Verdict.REPLAYED,
        Verdict.REPLAYED,
    ]


def test_a_replay_is_refused_after_the_keys_were_replaced_too() -> None:
    bob, ann = member(BOB), member(ANN)
    good = sealed(ann, plain())
    bob.open(good)
    bob.use(keys(NEW, OLD))
    assert bob.open(good).verdict is Verdict.REPLAYED


@pytest.mark.parametrize(
    ("datagram", "verdict"),
    [
        (b"".join(plain()), Verdict.PLAIN),
        (b"".join(plain(items=b"x" * 200)), Verdict.PLAIN),
        (b"".join(plain(group=8)), Verdict.IGNORED),
        (b"".join(plain(BOB)), Verdict.IGNORED),
        (b"", Verdict.MALFORMED),
        (b"x" * 100, Verdict.MALFORMED),
        (sealed(member(ANN, OTHER), plain()), Verdict.UNKNOWN_KEY),
        (sealed(Seal(8, ANN, keys(OLD)), plain(group=8)), Verdict.IGNORED),
        (sealed(member(BOB), plain(BOB)), Verdict.IGNORED),
        (sealed(member(ANN), plain(), CARL), Verdict.MISDIRECTED),
        (sealed(member(ANN), plain(), BOB), Verdict.ACCEPTED),
        (sealed(member(ANN), plain())[: SEALED_HEAD.size], Verdict.MALFORMED),
    ],
)
def test_each_datagram_has_its_verdict(datagram: bytes, verdict: Verdict) -> None:
    assert member(BOB).open(datagram).verdict is verdict


def test_a_datagram_of_another_group_s_key_is_forged_even_if_its_head_says_otherwise() -> None:
    data = bytearray(sealed(Seal(8, ANN, keys(OLD)), plain(group=8)))
    data[8:16] = GROUP.to_bytes(8, "little")
    assert member(BOB).open(bytes(data)).verdict is Verdict.FORGED


def test_keys_are_replaced_in_three_steps_without_a_refusal() -> None:
    ann, bob = member(ANN), member(BOB)
    for step in (keys(OLD, NEW), keys(NEW, OLD), keys(NEW)):
        for first, second in ((ann, bob), (bob, ann)):
            first.use(step)
            data = sealed(first, plain(ANN if first is ann else BOB))
            assert second.open(data).verdict is Verdict.ACCEPTED
            data = sealed(second, plain(BOB if first is ann else ANN))
            assert first.open(data).verdict is Verdict.ACCEPTED
    assert bob.open(sealed(member(CARL), plain(CARL))).verdict is Verdict.UNKNOWN_KEY


def test_a_sender_takes_a_new_key_after_an_epoch_and_both_are_read_in_any_order() -> None:
    ann, bob = member(ANN), member(BOB)
    ann._counter = EPOCH_MASK - 2
    datas = [sealed(ann, plain(items=b"%d" % number)) for number in range(6)]
    counters = [SEALED_HEAD.unpack_from(data)[-1] for data in datas]
    assert {counter >> EPOCH_BITS for counter in counters} == {0, 1}
    opened = [bob.open(datas[at]) for at in (0, 4, 1, 3, 5, 2)]
    assert [one.items for one in opened] == [b"0", b"4", b"1", b"3", b"5", b"2"]
    assert all(bob.open(data).verdict is Verdict.REPLAYED for data in datas)


def test_strangers_leave_nothing_behind() -> None:
    bob = member(BOB)
    good = sealed(member(ANN), plain())
    for number in range(90):
        bob.open(good[:16] + bytes([number]) * 16 + good[32:])
    assert (bob._senders, bob._openers) == ({}, {})


def test_a_new_sender_evicts_the_one_that_was_silent_for_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seal_module, "SENDERS_MAX", 2)
    bob, ann, carl = member(BOB), member(ANN), member(CARL)
    dora = b"d" * 16
    for one, sender in ((ann, ANN), (carl, CARL), (ann, ANN), (member(dora), dora)):
        assert bob.open(sealed(one, plain(sender))).verdict is Verdict.ACCEPTED
    assert set(bob._senders) == {ANN, dora}
    assert bob.open(sealed(carl, plain(CARL))).verdict is Verdict.ACCEPTED


class Members(RuleBasedStateMachine):
    """Members that send, restart and replace keys, and a network that brings anything to anyone at any time."""

    datagrams = Bundle("datagrams")

    def __init__(self) -> None:
        super().__init__()
        self.starts = 0
        self.ids: dict[int, bytes] = {}
        self.seals: dict[int, Seal] = {}
        self.accepted_keys: dict[int, tuple[str, ...]] = {}
        self.taken: set[tuple[bytes, bytes]] = set()
        self.used: set[tuple[int, bytes, int]] = set()
        """Key, sender and counter of all datagrams: none twice."""
        for number in range(3):
            self.start(number)

    def start(self, number: int) -> None:
        self.starts += 1
        self.ids[number] = self.starts.to_bytes(8, "little") + bytes(8)
        self.seals[number] = Seal(GROUP, self.ids[number], keys(OLD))
        self.accepted_keys[number] = (OLD,)

    @rule(number=st.integers(0, 2))
    def restart(self, number: int) -> None:
        self.start(number)

    @rule(
        number=st.integers(0, 2), some=st.lists(st.sampled_from([OLD, NEW, OTHER]), min_size=1, unique=True)
    )
    def replace_keys(self, number: int, some: list[str]) -> None:
        self.seals[number].use(keys(*some))
        self.accepted_keys[number] = tuple(some)

    @rule(target=datagrams, number=st.integers(0, 2), to=st.sampled_from([None, 0, 1, 2]))
    def send(self, number: int, to: int | None) -> tuple[bytes, bytes, str, bytes | None]:
        me = self.ids[number]
        whom = None if to is None else self.ids[to]
        data = sealed(self.seals[number], plain(me), whom)
        key, counter = SEALED_HEAD.unpack_from(data)[3], SEALED_HEAD.unpack_from(data)[-1]
        assert (key, me, counter) not in self.used
        self.used.add((key, me, counter))
        return data, me, self.accepted_keys[number][0], whom

    @rule(number=st.integers(0, 2), sent=datagrams)
    def arrive(self, number: int, sent: tuple[bytes, bytes, str, bytes | None]) -> None:
        data, sender, key, to = sent
        me = self.ids[number]
        verdict = self.seals[number].open(data).verdict
        if sender == me:
            assert verdict is Verdict.IGNORED
        elif key not in self.accepted_keys[number]:
            assert verdict is Verdict.UNKNOWN_KEY
        elif to not in (None, me):
            assert verdict is Verdict.MISDIRECTED
        elif (me, data) in self.taken:
            assert verdict is Verdict.REPLAYED
        else:
            assert verdict is Verdict.ACCEPTED
            self.taken.add((me, data))

    @invariant()
    def only_accepted_datagrams_are_remembered(self) -> None:
        for number, seal in self.seals.items():
            assert len(seal._senders) <= len({sent for me, sent in self.taken if me == self.ids[number]})


TestMembers = Members.TestCase
TestMembers.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
