"""Names and their tokens or passwords come from a file. A file that is not valid is named with the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from reknit.config.credentials import read_credentials
from reknit.errors import InvalidConfig

SETTING = "security.tokens_file"


def test_tokens_are_read_from_a_file_with_comments(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("# who we know\nann a-token\n\n  bob\tb-token  \n")
    assert read_credentials(str(file), SETTING) == {"ann": "a-token", "bob": "b-token"}
    assert read_credentials("", SETTING) == {}


def test_an_invalid_file_of_tokens_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
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
