"""JSON Web Tokens: only a key of the right issuer, for the right audience, and in time proves an identity."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("joserfc", reason="reknit[jwt] is not installed")

from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from reknit import environment
from reknit.config import Config, SecuritySettings, load
from reknit.errors import InvalidConfig
from reknit.server import build_node
from reknit.trust.gate import Gate
from reknit.trust.identities import Unauthenticated
from reknit.trust.jwt import JwtVerifier
from reknit.trust.rules import ANONYMOUS
from tests.node.fabric import client, config, run, until

NOW_S = 1_800_000_000
NOW_US = NOW_S * 1_000_000
ISSUER, OTHER = "https://login.example", "https://partner.example"
KEY = ECKey.generate_key("P-256", {"kid": "one"})
PARTNER = ECKey.generate_key("P-256", {"kid": "two"})
RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
ED = OKPKey.generate_key("Ed25519", {"kid": "ed"})
STRANGER = ECKey.generate_key("P-256", {"kid": "one"})
CLAIMS = {"iss": ISSUER, "aud": "plant", "sub": "ann", "exp": NOW_S + 60}


def key_set(*keys: Any) -> str:
    return json.dumps({"keys": [key.as_dict(private=False) for key in keys]})


@pytest.fixture
def make(tmp_path: Path) -> Callable[[], JwtVerifier]:
    (tmp_path / "keys.json").write_text(key_set(KEY, RSA, ED))
    (tmp_path / "partner.json").write_text(key_set(PARTNER))
    lines = (
        f"{ISSUER} plant {tmp_path}/keys.json",
        f"{OTHER} plant {tmp_path}/partner.json partner/{{email}}",
    )
    return lambda: JwtVerifier(lines)


def signed(key: Any = KEY, alg: str = "ES256", kid: str = "", **claims: Any) -> str:
    made = {name: value for name, value in (CLAIMS | claims).items() if value is not None}
    return jwt.encode({"alg": alg, "kid": kid or key.kid}, made, key, algorithms=[alg])


def unsigned(header: dict[str, Any], claims: dict[str, Any], signature: str = "") -> str:
    parts = [
        base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=").decode() for one in (header, claims)
    ]
    return ".".join([*parts, signature])


@pytest.mark.parametrize(("key", "alg"), [(KEY, "ES256"), (RSA, "RS256"), (RSA, "PS256"), (ED, "Ed25519")])
def test_a_token_proves_an_identity_until_it_expires(
    make: Callable[[], JwtVerifier], key: Any, alg: str
) -> None:
    verifier, token = make(), signed(key, alg)
    assert verifier.takes(token)
    for _ in range(2):  # verified, and remembered
        found = verifier.identify(token, NOW_US)
        assert found[:4] == ("ann", "jwt", ISSUER, NOW_US + 60_000_000)
    for late in (verifier, make()):
        with pytest.raises(Unauthenticated, match="expired at"):
            late.identify(token, NOW_US + 60_000_000)


def test_an_issuer_has_its_own_names(make: Callable[[], JwtVerifier]) -> None:
    token = signed(PARTNER, iss=OTHER, email="ann@partner.example", sub="root", aud=["x", "plant"])
    assert make().identify(token, NOW_US).name == "partner/ann@partner.example"


SECRET = OctKey.import_key(key_set(KEY), {"kid": "one"})


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (signed(PARTNER), "not signed by a key of an issuer"),
        (signed(KEY, iss=OTHER), "not signed by a key of an issuer"),
        (signed(STRANGER), "not signed by a key of an issuer"),
        (signed(KEY, kid="two"), "not signed by a key of an issuer"),
        (signed(KEY, kid="nowhere"), "not signed by a key of an issuer"),
        (signed(KEY, aud="other"), "another audience"),
        (signed(KEY, aud=["other"]), "another audience"),
        (signed(KEY, aud=None), "needs the claims"),
        (signed(KEY, exp=None), "needs the claims"),
        (signed(KEY, exp="soon"), "needs the claims"),
        (signed(KEY, exp=1e300), "needs the claims"),
        (signed(KEY, nbf=NOW_S + 3_600), "not valid yet"),
        (signed(KEY, sub=None), "can't be an identity"),
        (signed(KEY, sub=7), "can't be an identity"),
        (signed(KEY, sub="anonymous"), "can't be an identity"),
        (signed(KEY, sub="*"), "can't be an identity"),
        (signed(KEY, sub="a b"), "can't be an identity"),
        (signed(SECRET, "HS256", kid="one"), "signed by ES256"),
        (unsigned({"alg": "none", "kid": "one"}, CLAIMS), "signed by ES256"),
        (unsigned({"alg": "ES256", "kid": "one"}, CLAIMS), "not signed by a key"),
        (unsigned({"alg": "RS256", "kid": "one"}, CLAIMS, "AAAA"), "not signed by a key"),
        (unsigned({"alg": "ES256"}, CLAIMS), "not a valid JSON Web Token"),
        ("..", "not a valid JSON Web Token"),
        ("a.b.c", "not a valid JSON Web Token"),
        ("e" * 10_000 + "..", "at most"),
    ],
)
def test_what_does_not_fit_proves_nothing(make: Callable[[], JwtVerifier], token: str, why: str) -> None:
    with pytest.raises(Unauthenticated, match=why):
        make().identify(token, NOW_US)


def test_a_changed_token_proves_nothing(make: Callable[[], JwtVerifier]) -> None:
    head, _, rest = signed().partition(".")
    _, _, signature = rest.partition(".")
    forged = unsigned({}, CLAIMS | {"sub": "root"}).split(".")[1]
    with pytest.raises(Unauthenticated):
        make().identify(f"{head}.{forged}.{signature}", NOW_US)


@given(st.text(), st.binary())
def test_any_text_proves_nothing(text: str, data: bytes) -> None:
    verifier = JwtVerifier(())
    header = base64.urlsafe_b64encode(data).rstrip(b"=").decode()
    for token in (text, f"{text}.{text}.{text}", f"{header}.{text}."):
        with pytest.raises(Unauthenticated):
            verifier.identify(token, NOW_US)


class Rig:
    """A gate whose issuers are named in a file of settings, beside the rules."""

    def __init__(self, folder: Path) -> None:
        self.keys, self._settings = folder / "keys.json", folder / "reknit.toml"
        self.keys.write_text(key_set(KEY))
        (folder / "rsa.json").write_text(key_set(RSA))
        self.name(f"{ISSUER} plant {self.keys}")
        self.gate = Gate(load(self._settings, environ={}))
        self.parts = self.gate.reloadables()

    def reload(self) -> None:
        for part in self.parts.values():
            part.reload()

    def name(self, *lines: str) -> None:
        self._settings.write_text(f'[security]\nallow = ["ann publish **"]\njwt = {list(lines)}\n')


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def later(**claims: Any) -> str:
    return signed(exp=4_000_000_000, **claims)


def test_keys_change_while_a_node_runs(rig: Rig) -> None:
    ann = rig.gate.identify(later())
    rig.keys.write_text("[]")
    with pytest.raises(InvalidConfig):
        rig.reload()
    assert rig.gate.objection(ann) == "", "a file that is not valid changes nothing"
    rig.keys.write_text(key_set(RSA))
    rig.reload()
    assert "no longer trusted" in rig.gate.objection(ann)
    with pytest.raises(Unauthenticated):
        rig.gate.identify(later())
    assert rig.gate.identify(signed(RSA, "RS256", exp=4_000_000_000)).name == "ann"


def test_issuers_change_while_a_node_runs(rig: Rig, tmp_path: Path) -> None:
    ann = rig.gate.identify(later())
    rig.name(f"{ISSUER} plant {rig.keys}", f"{ISSUER} plant {tmp_path}/rsa.json far/{{sub}}")
    rig.reload()
    assert rig.parts["the list of issuers"].files == [str(rig.keys), str(tmp_path / "rsa.json")]
    assert rig.gate.objection(ann) == "", "another issuer does not end what the first one vouches for"
    assert rig.gate.identify(signed(RSA, "RS256", exp=4_000_000_000)).name == "far/ann"


@pytest.mark.parametrize(
    "line", [f"{ISSUER} office {{}}", f"{ISSUER} plant {{}} far/{{{{sub}}}}", "other plant {}"]
)
def test_an_identity_ends_with_what_its_line_said(rig: Rig, line: str) -> None:
    ann = rig.gate.identify(later())
    rig.name(line.format(rig.keys))
    rig.reload()
    assert "no longer trusted" in rig.gate.objection(ann)


def test_the_last_issuer_is_removed_by_a_restart(rig: Rig) -> None:
    """A file that is only being written has none either."""
    ann = rig.gate.identify(later())
    rig.name()
    with pytest.raises(InvalidConfig, match="restart the node"):
        rig.reload()
    assert rig.gate.objection(ann) == ""


def test_the_first_issuer_may_come_while_a_node_runs(tmp_path: Path) -> None:
    settings = tmp_path / "reknit.toml"
    settings.write_text('[security]\nallow = ["ann publish **"]\n')
    gate = Gate(load(settings, environ={}))
    (tmp_path / "keys.json").write_text(key_set(KEY))
    settings.write_text(
        f'[security]\nallow = ["ann publish **"]\njwt = ["{ISSUER} plant {tmp_path}/keys.json"]\n'
    )
    gate.reloadables()["the list of rules"].reload()
    assert gate.identify(later()).name == "ann"


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", '{"keys": [{}]}', '{"keys": [{"kty": "EC", "kid": "x"}]}', "[" * 100_000,
        json.dumps({"keys": [KEY.as_dict(private=True)]}),
        json.dumps({"keys": [{"kty": "oct", "k": "AAAA", "kid": "x"}]}),
    ],
)  # fmt: skip
def test_a_file_that_has_no_public_keys_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "keys.json").write_text(text)
    with pytest.raises(InvalidConfig, match=r"security\.jwt"):
        JwtVerifier([f"{ISSUER} plant {tmp_path}/keys.json"])


@pytest.mark.parametrize(
    "line", ["", "a", "a b", "a b /nowhere/keys.json", "a b c d", "a b c {sub}x", "a b c d e"]
)
def test_a_line_that_is_not_valid_is_refused(line: str) -> None:
    with pytest.raises(InvalidConfig, match=r"security\.jwt"):
        JwtVerifier([line])


def test_issuers_without_rules_are_for_those_who_have_a_token(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(key_set(KEY))
    gate = Gate(Config(security=SecuritySettings(jwt=(f"{ISSUER} plant {tmp_path}/keys.json",))))
    assert not gate.is_open
    assert not gate.may_publish(ANONYMOUS, "plant/a")
    ann = gate.identify(signed(exp=4_000_000_000))
    assert gate.may_publish(ann.name, "plant/a")
    assert (gate.objection(ann), gate.expires_us(ann)) == ("", 4_000_000_000_000_000)
    assert list(gate.reloadables()) == ["the list of issuers"]
    (tmp_path / "keys.json").write_text(key_set(RSA))
    gate.reloadables()["the list of issuers"].reload()
    assert "no longer trusted" in gate.objection(ann)


@pytest.mark.real
def test_a_connection_ends_when_its_token_expires(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "keys.json").write_text(key_set(KEY))
    security = SecuritySettings(jwt=(f"{ISSUER} plant {tmp_path}/keys.json",), allow=("ann publish **",))

    async def test() -> None:
        async with build_node(replace(config(), security=security)) as node:
            soon = environment.time_us() / 1_000_000 + 3
            async with (
                client(node, token=signed(exp=soon)) as ann,
                client(node, token=signed(exp=4e9)) as stays,
            ):
                await ann.publish("plant/a", b"x")
                await until(lambda: "closed the connection: the token of ann expired at" in caplog.text)
                await stays.publish("plant/b", b"x")
                assert [peer.identity for peer in node.peers if peer.identity] == ["ann"]

    run(test)
