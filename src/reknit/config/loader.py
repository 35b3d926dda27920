"""Loading the configuration: file, then environment, then flags; the last one wins."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

from reknit.config.config import KNOWN, SECTIONS, Config
from reknit.config.settings import Setting, settings_of
from reknit.config.topics import TopicSettings
from reknit.errors import InvalidConfig

__all__ = ["Given", "gather", "is_file", "load", "lookup", "reread"]


def load(
    path: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Config:
    """Read the file, the environment (the process's unless given) and overrides by full name (None: not set).

    >>> load(environ={}, overrides={"limits.batch_bytes": "64 KiB", "node.name": None}).limits.batch_bytes
    65536
    >>> load(environ={}, overrides={"journal.kin": 1})
    Traceback (most recent call last):
    reknit.errors.InvalidConfig: setting journal.kin (from flag) is unknown; did you mean journal.kind?
    """
    given = gather(path, os.environ if environ is None else environ, overrides or {})
    values: dict[str, dict[str, Any]] = {kind.title: {} for kind in SECTIONS}
    topics: tuple[TopicSettings, ...] = ()
    for name, raw, origin in given:
        if name == "topics":
            topics = tuple(_rules(raw, origin))
        else:
            section, _, key = name.partition(".")
            values[section][key] = lookup(name, KNOWN, name, origin).read(raw, name, origin)
    sections: dict[str, Any] = {kind.title: kind(**values[kind.title]) for kind in SECTIONS}
    return Config(**sections, topics=topics, origins=tuple((name, origin) for name, _, origin in given))


def _rules(raw: object, origin: str) -> Iterator[TopicSettings]:
    if not isinstance(raw, list | tuple) or not all(isinstance(table, dict) for table in raw):
        raise InvalidConfig("topics", origin, "must be [[topics]] tables, each with a pattern")
    known = {one.key: one for one in settings_of(TopicSettings)}
    for at, table in enumerate(raw):
        read: dict[str, Any] = {}
        for key, value in table.items():
            name = f"topics[{at}].{key}"
            read[key] = lookup(key, known, name, origin).read(value, name, origin)
        yield TopicSettings(**read)


def lookup(key: str, known: Mapping[str, Setting], name: str, origin: str) -> Setting:
    """The setting under a key, or `InvalidConfig` with the name that comes closest.

    >>> lookup("kid", {"kind": Setting("kind", str, "", "", 0, 0, None)}, "pump.kid", "flag")
    Traceback (most recent call last):
    reknit.errors.InvalidConfig: setting pump.kid (from flag) is unknown; did you mean kind?
    """
    if key in known:
        return known[key]
    if name in MOVED:
        raise InvalidConfig(name, origin, f"is part of [security] now, for every door: {MOVED[name]}")
    near = get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]}?" if near else "`reknit config show` lists all settings"
    raise InvalidConfig(name, origin, f"is unknown; {hint}")


_READ_WRITE: Final = (
    "write 'ann subscribe plant/**' for 'ann read plant/**' and 'ann publish plant/**' for 'ann write plant/**' "
    "in security.allow"
)
MOVED: Final = {
    "http.allow": _READ_WRITE,
    "amqp.allow": _READ_WRITE,
    "http.tokens_file": "name the file in security.tokens_file",
}


class Given(NamedTuple):
    """A value as it was found, and its origin.

    >>> Given("journal.kind", "disk", "flag").origin
    'flag'
    """

    name: str
    raw: object
    origin: str


def gather(
    path: str | Path | None, environ: Mapping[str, str], overrides: Mapping[str, object]
) -> list[Given]:
    """Every value that is set, in rising precedence: file, environment, overrides.

    >>> gather(None, {"REKNIT_JOURNAL__KIND": "memory", "REKNIT_OTHER": "-"}, {})
    [Given(name='journal.kind', raw='memory', origin='REKNIT_JOURNAL__KIND')]
    """
    return [*_from_file(path, environ), *_from_environ(environ), *_from_overrides(overrides)]


def _from_file(path: str | Path | None, environ: Mapping[str, str]) -> Iterator[Given]:
    wanted = path or environ.get("REKNIT_CONFIG")
    origin = str(wanted or "reknit.toml")
    try:
        tables = tomllib.loads(Path(origin).read_text("utf-8"))
    except FileNotFoundError as error:
        if wanted:
            raise InvalidConfig("", origin, "does not exist; create it or name another file") from error
        return
    except (OSError, ValueError) as error:
        raise InvalidConfig("", origin, f"can't be read: {error}") from error
    for section, content in tables.items():
        if isinstance(content, dict):
            yield from (Given(f"{section}.{key}", raw, origin) for key, raw in content.items())
        else:
            yield Given(section, content, origin)


def is_file(origin: str) -> bool:
    """Whether a setting comes from a file, which may change.

    >>> [is_file(origin) for origin in ("reknit.toml", "default", "flag", "REKNIT_SECURITY__ALLOW")]
    [True, False, False, False]
    """
    return origin not in ("default", "code", "flag") and not origin.startswith("REKNIT_")


def reread(name: str, path: str) -> Any:
    """The value that a setting has in a file now; its default if the file has none. Raises `InvalidConfig`.

    >>> reread("security.allow", "/nowhere/reknit.toml")
    Traceback (most recent call last):
    reknit.errors.InvalidConfig: config /nowhere/reknit.toml does not exist; create it or name another file
    """
    found = [one.raw for one in _from_file(path, {}) if one.name == name]
    return KNOWN[name].read(found[-1], name, path) if found else KNOWN[name].default


def _from_environ(environ: Mapping[str, str]) -> Iterator[Given]:
    for variable, raw in sorted(environ.items()):
        if variable.startswith("REKNIT_") and "__" in variable:
            yield Given(variable.removeprefix("REKNIT_").lower().replace("__", ".", 1), raw, variable)


def _from_overrides(overrides: Mapping[str, object]) -> Iterator[Given]:
    return (Given(name, raw, "flag") for name, raw in overrides.items() if raw is not None)
