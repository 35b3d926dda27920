from __future__ import annotations

import pickle
import tomllib
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reknit.config import (
    KNOWN,
    SECTIONS,
    Config,
    JournalSettings,
    LimitSettings,
    TopicSettings,
    TransportSettings,
    describe,
    load,
)
from reknit.config.settings import settings_of
from reknit.errors import InvalidConfig
from reknit.topic import Pattern


@pytest.fixture(autouse=True)
def no_file_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(text: str, name: str = "reknit.toml") -> Path:
    path = Path(name)
    path.write_text(text, "utf-8")
    return path


# -- where values come from


def test_without_anything_all_is_default() -> None:
    config = load(environ={})
    assert config == Config()
    assert config.node.listen == ("tcp://127.0.0.1:7440",)
    assert {row.origin for row in describe(config)} == {"default"}


def test_the_file_in_the_working_directory_is_found() -> None:
    write('[journal]\nkind = "memory"\nsegment_bytes = "1 MiB"\n[node]\nlisten = ["tcp://[::1]:0"]\n')
    config = load(environ={})
    assert config.journal == JournalSettings(kind="memory", segment_bytes=1 << 20)
    assert config.node.listen == ("tcp://[::1]:0",)
    assert config.origin("journal.kind") == "reknit.toml"


def test_a_named_file_goes_before_the_one_from_the_environment() -> None:
    write('[node]\nname = "here"', "reknit.toml")
    write('[node]\nname = "env"', "env.toml")
    write('[node]\nname = "named"', "named.toml")
    assert load(environ={}).node.name == "here"
    assert load(environ={"REKNIT_CONFIG": "env.toml"}).node.name == "env"
    assert load("named.toml", environ={"REKNIT_CONFIG": "env.toml"}).node.name == "named"


def test_a_flag_wins_over_the_environment_which_wins_over_the_file() -> None:
    write('[node]\nname = "file"\ndata_dir = "file"\n[journal]\nsync = false')
    environ = {
        "REKNIT_NODE__NAME": "env",
        "REKNIT_NODE__DATA_DIR": "env",
        "OTHER__X": "1",
        "REKNIT_HOME": "x",
    }
    config = load(environ=environ, overrides={"node.name": "flag", "journal.kind": None})
    assert (config.node.name, config.node.data_dir, config.journal.sync) == ("flag", Path("env"), False)
    assert config.origin("node.name") == "flag"
    assert config.origin("node.data_dir") == "REKNIT_NODE__DATA_DIR"
    assert config.origin("journal.sync") == "reknit.toml"
    assert config.origin("journal.kind") == "default"


def test_the_process_environment_is_read_unless_another_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKNIT_LIMITS__CONNECTIONS_MAX", "7")
    assert load().limits.connections_max == 7
    assert load(environ={}).limits.connections_max == Config().limits.connections_max


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("limits.frame_bytes_max", "32 MiB", 32 << 20),
        ("limits.frame_bytes_max", "32_000_000", 32_000_000),
        ("retention.bytes_max", "2TiB", 2 << 40),
        ("retention.age_s_max", "1.5", 1.5),
        ("journal.sync", "False", False),
        ("node.listen", "tcp://a:1, tcp://b:2", ("tcp://a:1", "tcp://b:2")),
        ("node.listen", "", ()),
        ("node.data_dir", "/var/lib/reknit", Path("/var/lib/reknit")),
    ],
)
def test_text_is_read_as_the_type_of_the_setting(name: str, text: str, value: object) -> None:
    variable = "REKNIT_" + name.replace(".", "__").upper()
    assert load(environ={variable: text}).get(name) == value


# -- topics


def test_the_first_rule_that_matches_a_topic_counts() -> None:
    write(
        '[[topics]]\npattern = "camera/*/raw"\ndurability = "memory"\n'
        '[[topics]]\npattern = "camera/**"\ndurability = "durable"\n'
    )
    config = load(environ={})
    assert config.topic("camera/1/raw").durability == "memory"
    assert config.topic("camera/1/still").durability == "durable"
    assert config.topic("other").pattern == Pattern("**")
    keys = [one.key for one in settings_of(TopicSettings)]
    names = [f"topics[{at}].{key}" for at in (0, 1) for key in keys]
    assert [row.name for row in describe(config)][-len(names) :] == names
    assert describe(config)[-1].origin == "reknit.toml"


# -- what is refused, and how


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[journal]\nkind = "tape"',
            "setting journal.kind (from reknit.toml) must be 'disk' or 'memory', not 'tape'",
        ),
        (
            "[limits]\nframe_byte_max = 1",
            "limits.frame_byte_max (from reknit.toml) is unknown; did you mean limits.frame_bytes_max?",
        ),
        ("[limit]\nsources_max = 1", "is unknown; did you mean limits.sources_max?"),
        (
            "sources_max = 1",
            "setting sources_max (from reknit.toml) is unknown; did you mean limits.sources_max?",
        ),
        (
            "[zzz]\nqqq = 1",
            "setting zzz.qqq (from reknit.toml) is unknown; `reknit config show` lists all settings",
        ),
        ("[limits]\nsources_max = 0", "must be an integer of at least 1, not 0"),
        ("[limits]\nsources_max = true", "must be an integer of at least 1, not True"),
        ("[limits]\nsources_max = 1.5", "must be an integer of at least 1, not 1.5"),
        ('[limits]\nsources_max = "1 KiB"', "must be an integer of at least 1, not '1 KiB'"),
        ("[limits]\ntopic_bytes_max = 2000", "must be an integer from 1 to 1020, or as '16 MiB', not 2000"),
        ("[transport]\nheartbeat_s = nan", "must be a number of at least 0.01, not nan"),
        ("[journal]\nsync = 1", "must be true or false, not 1"),
        ('[journal]\nsync = "yes"', "must be true or false, not 'yes'"),
        ("[node]\nname = 5", "must be text, not 5"),
        ('[node]\nname = "a\\nb"', "must be text, not 'a\\nb'"),
        ("[node]\nlisten = [1]", "must be a list of text, not [1]"),
        (
            '[node]\nlisten = ["ftp://a:1"]',
            "is not allowed: 'ftp://a:1' is not a valid address; write tcp or tls://host:port",
        ),
        ('[node]\nlisten = ["tcp://a:99999"]', "setting node.listen (from reknit.toml) is not allowed: "),
        ('[dispatch]\ndead_letter_topic = "a/*"', "is not allowed: topic 'a/*' has '*' at 2"),
        (
            '[[topics]]\npattern = "a//b"',
            "setting topics[0].pattern (from reknit.toml) is not allowed: pattern 'a//b'",
        ),
        (
            '[[topics]]\npatern = "a"',
            "setting topics[0].patern (from reknit.toml) is unknown; did you mean pattern?",
        ),
        ('topics = "a"', "setting topics (from reknit.toml) must be [[topics]] tables"),
        ("oops", "config reknit.toml can't be read: "),
        (
            "[limits]\nframe_bytes_max = 4096",
            "setting limits.frame_bytes_max (from reknit.toml) needs limits.payload_bytes_max to be at most"
            " limits.frame_bytes_max - 2048; now limits.payload_bytes_max = 8388608, limits.frame_bytes_max",
        ),
        (
            "[transport]\nheartbeat_s = 20",
            "needs transport.heartbeat_s to be at most transport.peer_timeout_s",
        ),
        (
            '[transport]\ntls_key_file = "k.pem"',
            "setting transport.tls_key_file (from reknit.toml) needs both files or neither",
        ),
        ('[node]\nlisten = ["tls://a:1"]', "needs transport.tls_cert_file for tls://"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_what_is_allowed(text: str, message: str) -> None:
    write(text)
    with pytest.raises(InvalidConfig) as caught:
        load(environ={})
    assert message in str(caught.value)


def test_a_mistake_in_the_environment_names_the_variable() -> None:
    with pytest.raises(InvalidConfig, match=r"journal.kind \(from REKNIT_JOURNAL__KIND\) must be"):
        load(environ={"REKNIT_JOURNAL__KIND": "tape"})
    with pytest.raises(
        InvalidConfig, match=r"\(from REKNIT_JOURNAL__KIN\) is unknown; did you mean journal.kind"
    ):
        load(environ={"REKNIT_JOURNAL__KIN": "disk"})


def test_a_file_that_was_named_has_to_exist() -> None:
    with pytest.raises(InvalidConfig, match=r"config nope.toml does not exist"):
        load("nope.toml", environ={})
    with pytest.raises(InvalidConfig, match=r"config nope.toml does not exist"):
        load(environ={"REKNIT_CONFIG": "nope.toml"})


def test_values_in_code_are_checked_too() -> None:
    with pytest.raises(
        InvalidConfig, match=r"limits.sources_max \(from code\) must be an integer of at least 1"
    ):
        LimitSettings(sources_max=-1)
    with pytest.raises(InvalidConfig, match=r"transport.heartbeat_s \(from code\) needs"):
        Config(transport=TransportSettings(heartbeat_s=60))
    assert Config(journal=JournalSettings(sync=False)).origin("journal.sync") == "code"


# -- the whole


def test_a_config_is_frozen_and_survives_pickling() -> None:
    config = load(environ={}, overrides={"node.name": "a", "topics": [{"pattern": "a/**"}]})
    again = pickle.loads(pickle.dumps(config))
    assert again == config
    assert again.origin("node.name") == "flag"
    assert hash(again) == hash(config)
    with pytest.raises(FrozenInstanceError):
        config.journal.kind = "memory"  # type: ignore[misc]


def test_every_setting_has_a_doc_a_valid_default_and_a_row() -> None:
    rows = {row.name: row for row in describe()}
    assert set(rows) == {*KNOWN, *(f"topics[].{one.key}" for one in settings_of(TopicSettings))}
    assert all(row.doc and row.type and row.value == row.default for row in rows.values())
    assert rows["limits.frame_bytes_max"].unit == "bytes"
    assert rows["dispatch.retry_backoff_s_max"].unit == "seconds"
    assert rows["limits.sources_max"].unit == ""
    assert {kind.title for kind in SECTIONS} < set(Config.__dataclass_fields__)


printable = st.text(st.characters(codec="utf-8"), max_size=8).filter(str.isprintable)


@given(
    name=printable,
    data_dir=printable.filter(lambda text: bool(text) and not text.startswith("~")),
    age=st.floats(0, 1e300),
    count=st.integers(0, 1 << 80),
    sync=st.booleans(),
    patterns=st.lists(st.sampled_from(["a/**", "$*b/ü", "**"]), max_size=2),
)
def test_a_config_written_as_toml_is_read_back(
    name: str, data_dir: str, age: float, count: int, sync: bool, patterns: list[str]
) -> None:
    flags = {
        "node.name": name,
        "node.data_dir": data_dir,
        "retention.age_s_max": age,
        "retention.count_max": count,
        "journal.sync": sync,
        "topics": [{"pattern": pattern, "durability": "memory"} for pattern in patterns],
    }
    config = load(environ={}, overrides=flags)
    assert load(write(config.to_toml(), "written.toml"), environ={}) == config


def test_the_written_file_explains_every_setting() -> None:
    text = replace(Config(), topics=(TopicSettings(),)).to_toml()
    tables = tomllib.loads(text)
    assert list(tables) == [*(kind.title for kind in SECTIONS), "topics"]
    assert all(f"# {row.doc}\n" in text for row in describe())


def test_an_ordered_topic_needs_an_end() -> None:
    """Otherwise one event could hold up those behind it for ever."""
    with pytest.raises(InvalidConfig, match=r"topics\[0\].order .* needs ttl_ms or attempts_max"):
        load(environ={}, overrides={"topics": [{"pattern": "a/**", "order": "source"}]})
    for bound in ({"ttl_ms": 1000}, {"attempts_max": 3}):
        load(environ={}, overrides={"topics": [{"pattern": "a/**", "order": "key", **bound}]})
    load(environ={}, overrides={"topics": [{"order": "source"}], "dispatch.attempts_max": 5})


@pytest.mark.parametrize("text", ["LATE=1:2", "UNAVAILABLE=x", "UNAVAILABLE=5:1"])
def test_a_back_off_that_can_not_be_read_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"dispatch\.retry_codes"):
        load(environ={}, overrides={"dispatch.retry_codes": [text]})
