"""Rules and tokens are read again while a node runs; a file that is not valid changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from reknit.config import load
from reknit.errors import InvalidConfig
from reknit.trust.gate import Gate
from reknit.trust.identities import Identity, Unauthenticated
from tests.tokens import write_tokens


class Rig:
    """A gate with its files."""

    def __init__(self, folder: Path) -> None:
        self.settings, self.tokens = folder / "reknit.toml", folder / "tokens"
        write_tokens(self.tokens, {"ann": "a-token", "bob": "b-token"})
        self.allow("ann publish plant/**", "bob subscribe plant/**")
        self.gate = Gate(load(self.settings, environ={}))
        self.parts = self.gate.reloadables()
        self.changes = 0
        self.gate.watchers.append(self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def allow(self, *rules: str) -> None:
        text = f'[security]\ntokens_file = "{self.tokens}"\nallow = {list(rules)}\n'
        self.settings.write_text(text)

    def reload(self) -> None:
        for part in self.parts.values():
            part.reload()


def who(gate: Gate, token: str) -> str | None:
    """The name behind a token; None for one that is not valid."""
    try:
        return gate.identify(token).name
    except Unauthenticated:
        return None


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_new_rules_hold_at_once_also_for_what_was_asked_before(rig: Rig) -> None:
    assert rig.gate.may_publish("ann", "plant/a")
    rig.allow("ann publish office/**", "bob subscribe plant/**")
    rig.reload()
    assert (rig.gate.may_publish("ann", "plant/a"), rig.gate.may_publish("ann", "office/a")) == (False, True)
    assert rig.changes == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[security]\nallow = ['ann eats plant/**']\n", "not a valid rule"),
        ("[security]\nallow = 7\n", "must be"),
        ("[security\n", "can't be read"),
        ("[security]\nallow = []\n", "restart the node"),
        ("", "restart the node"),
    ],
)
def test_rules_that_are_not_valid_or_that_are_gone_change_nothing(rig: Rig, text: str, why: str) -> None:
    rules = rig.gate.rules
    rig.settings.write_text(text)
    with pytest.raises(InvalidConfig, match=why):
        rig.parts["the list of rules"].reload()
    assert rig.gate.rules is rules
    assert rig.changes == 0


def test_new_tokens_are_known_and_revoked_ones_are_not(rig: Rig) -> None:
    write_tokens(rig.tokens, {"bob": "b-token", "cid": "c-token"})
    rig.reload()
    assert [who(rig.gate, token) for token in ("a-token", "b-token", "c-token")] == [None, "bob", "cid"]


def test_a_file_of_tokens_that_is_not_valid_changes_nothing(rig: Rig) -> None:
    rig.tokens.write_text("ann a-token\n")
    for mode in (0o600, 0o644):
        rig.tokens.chmod(mode)
        with pytest.raises(InvalidConfig):
            rig.parts["the file of tokens"].reload()
        assert who(rig.gate, "a-token") == "ann"


def test_the_last_token_may_be_revoked_and_nothing_opens(rig: Rig) -> None:
    write_tokens(rig.tokens, {})
    rig.reload()
    assert not rig.gate.is_open
    assert who(rig.gate, "a-token") is None


def test_rules_from_elsewhere_than_a_file_do_not_change(tmp_path: Path) -> None:
    for environ, overrides in (
        ({"REKNIT_SECURITY__ALLOW": "ann admin"}, {}),
        ({}, {"security.allow": "ann admin"}),
    ):
        (tmp_path / "reknit.toml").write_text('[security]\nallow = ["bob admin"]\n')
        gate = Gate(load(tmp_path / "reknit.toml", environ=environ, overrides=overrides))
        assert gate.reloadables() == {}


def test_a_door_says_why_an_identity_of_its_own_no_longer_holds(rig: Rig) -> None:
    rig.gate.follow("riddle", lambda identity: f"{identity.name} was forgotten")
    assert rig.gate.objection(Identity("sphinx", "riddle", "3")) == "sphinx was forgotten"
    assert rig.gate.objection(Identity("pump-7", "dream", "of 7")) == ""
