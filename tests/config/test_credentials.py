"""Secrets come from files that others can't read. A file that is not valid is named with the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from reknit.config import credentials
from reknit.config.credentials import read_credentials, read_private
from reknit.errors import InvalidConfig

SETTING = "amqp.users_file"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "users"
    file.touch(0o600)
    return file


def test_passwords_are_read_from_a_file_with_comments(file: Path) -> None:
    file.write_text("# who we know\nann s3cret\n\n  bob\thunter2  \n")
    assert read_credentials(str(file), SETTING) == {"ann": "s3cret", "bob": "hunter2"}
    assert read_credentials("", SETTING) == {}


def test_an_invalid_file_is_refused(file: Path, tmp_path: Path) -> None:
    file.write_text("ann\n")
    with pytest.raises(InvalidConfig, match="line 1") as refused:
        read_credentials(str(file), SETTING, "password")
    assert refused.value.setting == SETTING
    assert refused.value.why == "needs a name and a password"
    with pytest.raises(InvalidConfig, match="can't be read"):
        read_credentials(str(tmp_path / "none"), SETTING)
    file.write_bytes(b"ann \xff\n")
    with pytest.raises(InvalidConfig, match="can't be read"):
        read_credentials(str(file), SETTING)


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o666, 0o620, 0o601])
def test_a_file_of_secrets_that_others_can_read_or_change_is_refused(file: Path, mode: int) -> None:
    file.write_text("ann s3cret\n")
    file.chmod(mode)
    with pytest.raises(InvalidConfig, match=f"chmod 600 {file}") as refused:
        read_private(str(file), SETTING)
    assert "s3cret" not in str(refused.value)
    file.chmod(0o400)
    assert read_private(str(file), SETTING) == "ann s3cret\n"


def test_an_error_quotes_nothing_of_a_file_of_secrets(file: Path) -> None:
    file.write_bytes(b"ann s3cret\xff\n")
    with pytest.raises(InvalidConfig) as refused:
        read_private(str(file), SETTING)
    assert "s3cret" not in repr(refused.value)
    assert refused.value.__cause__ is None


def test_a_file_without_end_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "BYTES_MAX", 10)
    long = tmp_path / "long"
    long.touch(0o600)
    long.write_bytes(bytes(11))
    with pytest.raises(InvalidConfig, match="is longer than 10 bytes"):
        read_private(str(long), SETTING)
