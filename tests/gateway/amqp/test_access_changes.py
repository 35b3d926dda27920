"""Links end with the reason when their client may no longer have them; others of the same connection go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import proton
import pytest

from reknit import environment
from reknit.node.node import Node
from reknit.trust.attempts import FREE
from tests.gateway.amqp.clients import Client, broker, config, url_of
from tests.guarded_files import GuardedFiles

pytestmark = pytest.mark.real

SECRETS = {"ann": "a-token", "bob": "b-token"}
DENIED = "amqp:unauthorized-access"
UNAUTHENTICATED = "reknit:unauthenticated"


@pytest.fixture
def files(tmp_path: Path) -> GuardedFiles:
    (tmp_path / "users").touch(0o600)
    (tmp_path / "users").write_text("cid s3cret\n")
    verbs = ("publish", "subscribe")
    return GuardedFiles(
        tmp_path,
        SECRETS,
        *(f"{name} {verb} **" for name in ("ann", "bob", "cid") for verb in verbs),
    )


@pytest.fixture
def node(files: GuardedFiles, tmp_path: Path) -> Iterator[Node]:
    users = str(tmp_path / "users")
    with broker(files.guard(config(mechanisms=("PLAIN",), plain_needs_tls=False, users_file=users))) as node:
        yield node


def client(node: Node, name: str, password: str) -> Client:
    options: dict[str, Any] = {"sasl_enabled": True, "allowed_mechs": "PLAIN", "allow_insecure_mechs": True}
    return Client(url_of(node), user=name, password=password, **options)


def test_links_that_lost_their_rule_end_and_others_go_on(node: Node, files: GuardedFiles) -> None:
    with client(node, "ann", "a-token") as ann, client(node, "bob", "b-token") as bob:
        plant, office = ann.receiver("plant/*"), ann.receiver("office/*")
        writes, relay = ann.sender("plant/1"), ann.sender(None, name="relay")
        assert writes.send(b"before").outcome == "accepted"
        assert relay.send(proton.Message(body=b"before", address="plant/2")).outcome == "accepted"
        bobs = bob.receiver("plant/*")
        files.allow("ann subscribe office/*", "ann publish office/*", "bob publish **", "bob subscribe **")
        ann.wait(lambda: len(ann.errors) == 2, "two links to end")
        assert {condition for condition, _ in ann.errors} == {DENIED}
        assert {text for _, text in ann.errors} == {
            "ann may no longer read plant/*: the rules have changed",
            "ann may no longer publish on plant/1: the rules have changed",
        }
        assert relay.send(proton.Message(body=b"after", address="plant/2")).outcome == "rejected"
        assert bob.sender("plant/3").send(b"seen").outcome == "accepted"
        assert bob.sender("office/1", name="office").send(b"seen").outcome == "accepted"
        assert office.wait(1) == [b"seen"]
        assert b"seen" in bobs.wait(1)
        assert b"seen" not in plant.bodies


def test_a_revoked_token_or_password_ends_its_connection_and_no_other(
    node: Node, files: GuardedFiles, tmp_path: Path
) -> None:
    with (
        client(node, "ann", "a-token") as ann,
        client(node, "bob", "b-token") as bob,
        client(node, "cid", "s3cret") as cid,
    ):
        files.tokens({"bob": "b-token"})
        ann.wait(lambda: ann.errors, "the end")
        assert (UNAUTHENTICATED, "the token 'ann' of ann was revoked") in ann.errors
        (tmp_path / "users").write_text("cid another\n")
        cid.wait(lambda: cid.errors, "the end")
        assert (UNAUTHENTICATED, "the password of cid was changed or removed") in cid.errors
        assert bob.sender("plant/1").send(b"x").outcome == "accepted"
        assert not bob.errors


def test_a_token_that_expires_ends_its_connection(node: Node, files: GuardedFiles) -> None:
    with client(node, "ann", "a-token") as ann:
        files.tokens(SECRETS, environment.time_us() + 2_000_000)
        ann.wait(lambda: ann.errors, "the end")
        assert ann.errors[-1][0] == UNAUTHENTICATED
        assert "expired at" in ann.errors[-1][1]


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("ann", "b-token"),
        ("ann", "guess"),
        ("nobody", "a-token"),
        ("", "a-token"),
        ("ann", ""),
        ("bob", "s3cret"),
    ],
)
def test_a_token_is_the_password_of_its_identity_only(node: Node, name: str, password: str) -> None:
    with client(node, name, password) as refused:
        assert not refused.is_open


def test_an_address_that_guesses_waits_and_is_not_banned(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reknit.trust.attempts.FORGIVE_S", 1e9)  # however slow the machine is
    for _ in range(FREE + 2):
        with client(node, "ann", "guess") as refused:
            assert not refused.is_open
    totals = node.gate.attempts.totals()
    assert totals["failed"] == {"amqp": FREE + 2}
    assert totals["slowed"] >= 1, "everybody at this address waits, as passwords might be guessed"
    with client(node, "ann", "a-token") as ann:
        assert ann.sender("plant/1").send(b"x").outcome == "accepted"
