"""Tokens: the file holds hashes, an error never shows a secret, and only a valid token proves an identity."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reknit.config import Config, SecuritySettings
from reknit.errors import InvalidConfig
from reknit.trust.gate import Gate
from reknit.trust.identities import Unauthenticated
from reknit.trust.rules import ANONYMOUS
from reknit.trust.token_file import add_token, read_tokens, remove_token
from reknit.trust.tokens import Token, Tokens, check_names, digest_of, make_secret, parse_tokens
from tests.tokens import write_tokens

HOUR_US = 3_600_000_000
NOW_US = 1_800_000_000_000_000
LAPTOP = Token("laptop", "ann", digest_of("one"), NOW_US, NOW_US + HOUR_US)
PHONE = Token("phone", "ann", digest_of("two"), NOW_US, 0)


def refusal(tokens: Tokens, secret: str, now_us: int = NOW_US) -> str:
    with pytest.raises(Unauthenticated) as refused:
        tokens.identify(secret, now_us)
    return refused.value.why


def test_a_new_token_has_a_known_prefix_and_256_bits_that_nobody_knows() -> None:
    several = {make_secret() for _ in range(100)}
    assert len(several) == 100
    assert all(one.startswith("reknit_") and len(one) == len("reknit_") + 43 for one in several)


def test_a_token_proves_its_identity_until_it_expires() -> None:
    tokens = Tokens([LAPTOP, PHONE])
    assert tokens.identify("one", NOW_US)[:4] == ("ann", "token", "laptop", NOW_US + HOUR_US)
    assert tokens.identify("two", NOW_US + HOUR_US).proof == "phone"
    assert refusal(tokens, "one", NOW_US + HOUR_US).endswith("expired at 2027-01-15T09:00:00Z")
    assert "not known here" in refusal(tokens, "three")
    assert "not known here" in refusal(tokens, LAPTOP.digest.hex())


@given(st.text())
def test_no_other_text_is_a_token(text: str) -> None:
    if text not in ("one", "two"):
        assert "not known here" in refusal(Tokens([LAPTOP, PHONE]), text)


def test_an_identity_no_longer_holds_when_its_token_is_revoked_replaced_or_expired() -> None:
    tokens = Tokens([LAPTOP, PHONE])
    ann = tokens.identify("one", NOW_US)
    assert tokens.objection(ann, NOW_US) == ""
    assert "expired" in tokens.objection(ann, NOW_US + HOUR_US)
    assert "'laptop' of ann was revoked" in Tokens([PHONE]).objection(ann, NOW_US)
    again = LAPTOP._replace(digest=digest_of("new"))
    assert "revoked" in Tokens([again]).objection(ann, NOW_US)
    other = LAPTOP._replace(identity="bob")
    assert "revoked" in Tokens([other]).objection(ann, NOW_US)


def test_tokens_are_added_and_removed_and_comments_stay(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    add_token(str(path), LAPTOP)
    path.write_text(path.read_text() + "# of the office\n")
    add_token(str(path), PHONE)
    assert read_tokens(str(path)) == [LAPTOP, PHONE]
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError, match="revoke it first"):
        add_token(str(path), LAPTOP)
    remove_token(str(path), "laptop")
    assert read_tokens(str(path)) == [PHONE]
    assert "# of the office\n" in path.read_text()
    with pytest.raises(LookupError, match="no token 'laptop'"):
        remove_token(str(path), "laptop")
    assert [one.name for one in tmp_path.iterdir()] == ["tokens"]


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    write_tokens(path, {"ann": "a-token"})
    path.chmod(0o644)
    with pytest.raises(InvalidConfig, match="chmod 600"):
        Gate(Config(security=SecuritySettings(tokens_file=str(path))))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("ann s3cret", "plain text.*reknit token create"),
        ("ann", "needs a name"),
        ("laptop ann s3cret 2026-01-31T12:00:00Z never", "needs a hash"),
        (f"laptop ann sha256:{'g' * 64} 2026-01-31T12:00:00Z never", "not hexadecimal"),
        (f"laptop ann sha256:{'0' * 64} 2026-01-31 never", "a time that is not"),
        (f"laptop ann sha256:{'0' * 64} 2026-01-31T12:00:00Z s3cret", "a time that is not"),
        (f"laptop anonymous sha256:{'0' * 64} 2026-01-31T12:00:00Z never", "have proven none"),
        (f"laptop * sha256:{'0' * 64} 2026-01-31T12:00:00Z never", "have proven none"),
        (PHONE.line, "earlier line"),
        (PHONE._replace(name="other").line, "earlier line"),
    ],
)
def test_a_line_that_is_not_valid_is_refused_with_its_number_and_without_secrets(line: str, why: str) -> None:
    text = f"# tokens\n{PHONE.line}\n{line}\n"
    with pytest.raises(InvalidConfig, match=f"(?s)tokens line 3.*{why}") as refused:
        list(parse_tokens(text, "security.tokens_file", "tokens"))
    assert "s3cret" not in repr(refused.value)


@given(st.text(), st.text())
def test_whatever_names_are_accepted_can_be_read_again(name: str, identity: str) -> None:
    try:
        check_names(name, identity)
    except ValueError:
        return
    token = PHONE._replace(name=name, identity=identity)
    assert list(parse_tokens(token.line, "setting", "path")) == [token]


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(InvalidConfig):
        assert list(parse_tokens(text, "setting", "path")) == []


def test_a_file_without_tokens_is_not_an_open_door(tmp_path: Path) -> None:
    gate = Gate(Config(security=SecuritySettings(tokens_file=write_tokens(tmp_path / "tokens", {}))))
    assert not gate.is_open
    assert not gate.may_publish(ANONYMOUS, "plant/a")
