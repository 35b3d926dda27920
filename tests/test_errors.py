from __future__ import annotations

import copy
import pickle

import pytest

from reknit import errors
from reknit.errors import (
    Aborted,
    Closed,
    Full,
    Gone,
    InvalidAddress,
    InvalidAttributes,
    InvalidCheckpoint,
    InvalidConfig,
    InvalidPayload,
    InvalidTopic,
    JournalCorrupt,
    JournalError,
    JournalFull,
    JournalLocked,
    LocalError,
    MalformedFrame,
    Modified,
    NotConnected,
    NotOpen,
    Refused,
    Rejected,
    ReknitError,
    Released,
    RemoteError,
    RequestFailed,
    TlsFailed,
    TooFewCopies,
    TooLarge,
    Undelivered,
    VersionMismatch,
)
from reknit.outcome import Code

SAMPLES: list[ReknitError] = [
    InvalidTopic("a//b", "has an empty segment", "pattern"),
    InvalidConfig("journal.kind", "reknit.toml:journal.kind", "must be 'disk' or 'memory', not 'tape'"),
    InvalidAddress("/1/1", "is none"),
    InvalidAttributes("ttl", "must be more than 0"),
    InvalidCheckpoint("oops", "is cut off"),
    NotOpen("the session"),
    InvalidPayload({"temp": 21.5}),
    TooLarge("a payload of 20 bytes on 'a'", 10, "limits.payload_bytes_max"),
    Full("8 subscriptions are open", "limits.subscriptions_max"),
    Closed("journal data"),
    NotConnected("tcp://127.0.0.1:7440", "refused"),
    TlsFailed("tls://plant:7441", "its certificate has expired"),
    MalformedFrame("bad magic", "byte 0"),
    VersionMismatch(1, 2),
    Aborted("films/new", "0a" * 16, "its publisher gave it up"),
    Refused(Code.PERMISSION_DENIED, "may not publish"),
    RequestFailed(Code.UNAVAILABLE, "nobody serves it", "up:/1/1/1"),
    Undelivered("a", "0a" * 16, 1, 2, "nobody took it"),
    Released("a", "0a" * 16, 1, 2, "nobody subscribes to it", Code.UNAVAILABLE, "node", "", 3),
    Rejected("a", "0a" * 16, 1, 2, "not an order", Code.INVALID_ARGUMENT, "node", "billing"),
    Modified("a", "0a" * 16, 1, 2, "the path was lost", Code.UNKNOWN, "node", "billing"),
    Gone(12, "topic 'a'"),
    TooFewCopies("a", 7, 1, 3),
    JournalError("I/O error", "data/log"),
    JournalFull("no space left", "data/log"),
    JournalCorrupt("data/log/0.log", 512, "checksum does not match"),
    JournalLocked("data"),
]


def named(error: ReknitError) -> str:
    return type(error).__name__


def test_every_error_has_a_sample_here_and_a_line_in_the_tree() -> None:
    bases = {"ReknitError", "LocalError", "RemoteError"}
    assert {named(sample) for sample in SAMPLES} | bases == set(errors.__all__)
    assert all(name in (errors.__doc__ or "") for name in errors.__all__)


@pytest.mark.parametrize("error", SAMPLES, ids=named)
def test_facts_and_text_survive_pickling_and_copying(error: ReknitError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)


@pytest.mark.parametrize("error", SAMPLES, ids=named)
def test_text_is_one_line_with_every_fact(error: ReknitError) -> None:
    text = str(error)
    assert "\n" not in text
    assert all((fact.name if isinstance(fact, Code) else str(fact)) in text for fact in error.args)


@pytest.mark.parametrize(
    ("error", "kinds"),
    [
        (InvalidTopic, (LocalError, ValueError)),
        (InvalidConfig, (LocalError, ValueError)),
        (InvalidCheckpoint, (LocalError, ValueError)),
        (Full, (LocalError,)),
        (Closed, (LocalError,)),
        (NotConnected, (LocalError, ConnectionError)),
        (TlsFailed, (NotConnected,)),
        (MalformedFrame, (RemoteError,)),
        (VersionMismatch, (RemoteError,)),
        (Refused, (RemoteError,)),
        (Gone, (ReknitError, LookupError)),
        (JournalFull, (JournalError,)),
        (JournalCorrupt, (JournalError,)),
        (JournalLocked, (JournalError,)),
    ],
)
def test_errors_are_split_by_blame(error: type[ReknitError], kinds: tuple[type[Exception], ...]) -> None:
    assert all(issubclass(error, kind) for kind in kinds)
    assert not (issubclass(error, LocalError) and issubclass(error, RemoteError))


def test_a_hostile_text_does_not_flood_a_log() -> None:
    assert len(str(InvalidTopic("x" * 1_000_000, "is long"))) < 200
    assert "1000000 characters" in str(InvalidTopic("x" * 1_000_000, "is long"))


def test_a_version_mismatch_says_which_side_to_upgrade() -> None:
    assert "upgrade our side" in str(VersionMismatch(1, 2))
    assert "upgrade the peer's side" in str(VersionMismatch(2, 1))
