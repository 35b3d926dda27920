"""What was read from files is read again on request, and when a file changes; a failure changes nothing."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from reknit.errors import InvalidConfig
from reknit.node.file_reloader import CHECK_S, FileReloader


class Words:
    """The text of a file, which may not be empty."""

    def __init__(self, path: Path) -> None:
        self.files = [str(path)]
        self.text = path.read_text()
        self.count = 0

    def reload(self) -> None:
        self.count += 1
        text = Path(self.files[0]).read_text()
        if not text:
            raise InvalidConfig("words", "a test", "is empty")
        self.text = text


def test_a_change_is_noticed_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "words"
    path.write_text("one")
    words, reloader = Words(path), FileReloader()
    reloader.add("the list", words)
    reloader.add("nothing", None)
    reloader.check(10.0)
    assert words.count == 0
    path.write_text("one two")
    reloader.check(10.0 + CHECK_S / 2)
    assert words.count == 0, "it is not time yet"
    reloader.check(10.0 + CHECK_S)
    reloader.check(10.0 + 2 * CHECK_S)
    assert (words.text, words.count) == ("one two", 1)
    assert caplog.messages == [f"the list was reloaded from {path}"]


def test_a_failure_keeps_what_was_read_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "words"
    path.write_text("one")
    words, reloader = Words(path), FileReloader()
    reloader.add("the list", words)
    path.write_text("")
    for turn in range(1, 4):
        reloader.check(turn * CHECK_S)
    assert (words.text, words.count) == ("one", 1), "it waits for the next change"
    assert caplog.messages == ["the list stays as it was: setting words (from a test) is empty"]


def test_a_request_reads_everything_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "words"
    path.write_text("one")
    reloader, words = FileReloader(), Words(path)
    reloader.reload()
    assert "nothing to reload" in caplog.text
    reloader.add("the list", words)
    with caplog.at_level(logging.WARNING):
        reloader.reload()
    assert words.count == 1


def test_who_watches_is_told_what_was_reloaded_and_what_was_not(tmp_path: Path) -> None:
    path = tmp_path / "words"
    path.write_text("one")
    reloader, told = FileReloader(), list[tuple[str, str, bool]]()
    reloader.watch(lambda name, files, why: told.append((name, files, "is empty" in why)))
    reloader.add("the list", Words(path))
    reloader.reload()
    path.write_text("")
    reloader.reload()
    assert told == [("the list", str(path), False), ("the list", str(path), True)]
