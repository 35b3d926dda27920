"""`reknit token`: a token is shown once, and its file has only the hash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from reknit import environment
from reknit.cli.main import app
from reknit.trust.token_file import read_tokens
from reknit.trust.tokens import Tokens


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens"


def token(file: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["token", *words, "--file", str(file)])


def as_json(file: Path, *words: str) -> Any:
    return json.loads(token(file, *words, "--json").stdout)


def test_a_token_is_created_listed_and_revoked(file: Path) -> None:
    made = token(file, "create", "laptop", "--identity", "ann")
    assert made.exit_code == 0
    secret = made.stdout.strip()
    assert secret not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert Tokens(read_tokens(str(file))).identify(secret, environment.time_us()).name == "ann"
    listed = token(file, "list").stdout
    assert ("laptop" in listed, "never" in listed, secret in listed) == (True, True, False)
    assert token(file, "revoke", "laptop").stdout == "laptop is revoked\n"
    assert as_json(file, "list") == []


def test_a_token_may_expire(file: Path) -> None:
    made = as_json(file, "create", "laptop", "--identity", "ann", "--expires", "90d")
    assert (made["name"], made["identity"], made["state"]) == ("laptop", "ann", "valid")
    [known] = read_tokens(str(file))
    assert known.expires_us == known.created_us + 90 * 86_400_000_000
    [row] = as_json(file, "list")
    assert {key: made[key] for key in row} == row
    assert set(made) - set(row) == {"token"}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("create", "laptop", "--identity", "ann", "--expires", "tomorrow"), "write it as 90d"),
        (("create", "laptop", "--identity", "ann", "--expires", "0d"), "write it as 90d"),
        (("create", "laptop", "--identity", "anonymous"), "have proven none"),
        (("create", "a laptop", "--identity", "ann"), "without spaces"),
        (("revoke", "laptop"), "has no token 'laptop'"),
    ],
)
def test_what_can_t_be_done_is_refused_and_changes_nothing(
    file: Path, words: tuple[str, ...], why: str
) -> None:
    token(file, "create", "other", "--identity", "bob")
    before = file.read_text()
    refused = token(file, *words)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert why in refused.stderr
    assert file.read_text() == before


def test_a_name_is_used_once(file: Path) -> None:
    token(file, "create", "laptop", "--identity", "ann")
    again = token(file, "create", "laptop", "--identity", "bob")
    assert (again.exit_code, "revoke it first" in again.stderr) == (1, True)
    assert [one.identity for one in read_tokens(str(file))] == ["ann"]


def test_the_file_is_that_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = CliRunner()
    monkeypatch.chdir(tmp_path)
    without = shell.invoke(app, ["token", "list"])
    assert (without.exit_code, "security.tokens_file" in without.stderr) == (1, True)
    (tmp_path / "reknit.toml").write_text('[security]\ntokens_file = "known"\n')
    assert shell.invoke(app, ["token", "create", "laptop", "--identity", "ann"]).exit_code == 0
    assert [one.name for one in read_tokens("known")] == ["laptop"]
