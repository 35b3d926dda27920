"""The keys that members share: how they are read, and that errors show nothing of them."""

from __future__ import annotations

import pytest

from reknit.errors import InvalidConfig
from reknit.protocol.sealing.shared_keys import KEYS_MAX, SharedKey, SharedKeys

ONE, TWO = "11" * 32, "ab" * 32


def test_the_first_key_is_used_and_all_are_accepted() -> None:
    keys = SharedKeys.parse(f"# of the plant\n\n{ONE}  # since May\n{TWO}\n")
    assert [key.secret.hex() for key in keys] == [ONE, TWO]
    assert keys.used.secret.hex() == ONE
    assert all(keys.get(key.id) is key for key in keys)
    assert keys.get(0) is None


def test_keys_of_the_environment_may_be_on_one_line() -> None:
    assert len(SharedKeys.parse(f"{ONE} {TWO}")) == 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no key"),
        ("# only a comment", "has no key"),
        (ONE[:-2], "line 1.*62 characters"),
        (f"{ONE}\n{'zz' * 32}", "line 2.*64 hexadecimal digits"),
        ("\n".join(f"{number:064x}" for number in range(KEYS_MAX + 1)), "17 keys, more than 16"),
    ],
)
def test_a_text_without_good_keys_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidConfig, match=why):
        SharedKeys.parse(text, "keys.txt")


def test_neither_errors_nor_representations_show_a_secret() -> None:
    nearly = TWO + "0"
    with pytest.raises(InvalidConfig) as raised:
        SharedKeys.parse(nearly)
    assert TWO not in str(raised.value)
    assert TWO not in repr(raised.value)
    assert repr(SharedKey(bytes.fromhex(TWO))) == f"SharedKey('{SharedKey(bytes.fromhex(TWO)).name}')"
