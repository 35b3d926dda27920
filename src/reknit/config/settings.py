"""A setting: type, default, limits and description in one line of its section, and how its value is read.

A value may be typed (from TOML or code) or text (from the environment or a flag). Both are read alike.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from reknit.errors import InvalidConfig, InvalidTopic
from reknit.topic import Pattern

__all__ = ["Section", "Setting", "setting", "settings_of"]

T = TypeVar("T")

_SHOWN_CHARS_MAX = 80
_SIZE = re.compile(r"(\d[\d_]*) ?(KiB|MiB|GiB|TiB)")
_FACTORS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_UNITS = {"bytes": "bytes", "s": "seconds", "ms": "milliseconds"}
_TRUTHS = {"true": True, "false": False}
_PLAIN = {"str": str, "int": int, "float": float, "bool": bool}


def setting(
    default: T,
    doc: str,
    *,
    low: float = 0,
    high: float = math.inf,
    check: Callable[[T], object] | None = None,
    secret: bool = False,
) -> T:
    """Declare a setting in a section. Numbers are within `[low, high]`; `check` raises ValueError to refuse a value.
    A `secret` is never shown.

    >>> @dataclass(frozen=True, slots=True, kw_only=True)
    ... class Pump(Section):
    ...     title: ClassVar[str] = "pump"
    ...     rest_s_min: float = setting(1.5, "how long it rests at least")
    >>> Pump(rest_s_min="4")
    Pump(rest_s_min=4.0)
    """
    known = {"doc": doc, "low": low, "high": high, "check": check, "secret": secret}
    return field(default=default, repr=not secret, metadata=known)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as `settings_of` finds it.

    >>> from reknit.config import JournalSettings
    >>> one = settings_of(JournalSettings)[0]
    >>> one.key, one.default, one.type_text
    ('kind', 'disk', "'disk' or 'memory'")
    """

    key: str
    kind: Any
    default: Any
    doc: str
    low: float
    high: float
    check: Callable[[Any], object] | None
    secret: bool = False

    @property
    def unit(self) -> str:
        """The last word of the name that is neither `min` nor `max`, if it is a unit.

        >>> from reknit.config import TransportSettings
        >>> settings_of(TransportSettings)[0].unit
        'seconds'
        """
        words = [word for word in self.key.split("_") if word not in ("min", "max")]
        return _UNITS.get(words[-1], "")

    @property
    def type_text(self) -> str:
        """The type in words.

        >>> from reknit.config import NodeSettings
        >>> [one.type_text for one in settings_of(NodeSettings)]
        ['text', 'path', 'list of text']
        """
        if get_origin(self.kind) is Literal:
            return " or ".join(repr(choice) for choice in get_args(self.kind))
        return _KINDS[self.kind][0]

    @property
    def allowed(self) -> str:
        """The allowed values, in words.

        >>> from reknit.config import LimitSettings
        >>> settings_of(LimitSettings)[0].allowed
        "an integer from 4096 to 67108864, or as '16 MiB'"
        """
        words = _ARTICLES.get(self.kind, "") + self.type_text
        if self.kind not in (int, float):
            return words
        span = f"of at least {self.low}" if self.high == math.inf else f"from {self.low} to {self.high}"
        return f"{words} {span}" + (", or as '16 MiB'" if self.unit == "bytes" else "")

    def read(self, raw: object, name: str, origin: str) -> Any:
        """The value, or `InvalidConfig` with the setting's name, its origin and the allowed values.

        >>> from reknit.config import LimitSettings
        >>> settings_of(LimitSettings)[0].read("1 MiB", "limits.frame_bytes_max", "flag")
        1048576
        """
        try:
            value = self._parse(raw)
        except InvalidTopic as error:
            raise InvalidConfig(name, origin, f"is not allowed: {error}") from error
        except (ValueError, TypeError) as error:
            if self.secret:  # neither the text nor its cause may quote it
                raise InvalidConfig(name, origin, f"must be {self.allowed}") from None
            shown = repr(raw)[:_SHOWN_CHARS_MAX]
            raise InvalidConfig(name, origin, f"must be {self.allowed}, not {shown}") from error
        try:
            if self.check is not None:
                self.check(value)
        except ValueError as error:
            raise InvalidConfig(name, origin, f"is not allowed: {error}") from error
        return value

    def _parse(self, raw: object) -> Any:
        if get_origin(self.kind) is Literal:
            return _known(raw in get_args(self.kind), raw)
        if self.unit == "bytes" and isinstance(raw, str) and (size := _SIZE.fullmatch(raw)):
            raw = int(size[1]) * _FACTORS[size[2]]
        value = _KINDS[self.kind][1](raw)
        within = self.kind not in (int, float) or self.low <= value <= self.high
        return _known(within, value)


def settings_of(section: type[Section]) -> tuple[Setting, ...]:
    """The settings that a section declares, in order.

    >>> from reknit.config import NodeSettings
    >>> [one.key for one in settings_of(NodeSettings)]
    ['name', 'data_dir', 'listen']
    """
    if section not in _declared:
        kinds = _kinds(section)
        _declared[section] = tuple(
            Setting(one.name, kinds[one.name], one.default, **one.metadata) for one in fields(section)
        )
    return _declared[section]


def _kinds(section: type[Section]) -> dict[str, Any]:
    """The types of a section's fields. Most are plain, and only the others have to be evaluated, which takes long."""
    texts = {one.name: str(one.type) for one in fields(section)}
    others = {name: text for name, text in texts.items() if text not in _PLAIN}
    holder = type("Others", (), {"__annotations__": others, "__module__": section.__module__})
    return {name: _PLAIN.get(text) for name, text in texts.items()} | get_type_hints(holder)


_declared: dict[type[Section], tuple[Setting, ...]] = {}
"""By section. To read the types of its fields takes longer than to read its values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The base of all sections. Every value is read and checked, also one that is given in code.

    >>> from reknit.config import JournalSettings
    >>> JournalSettings(kind="tape")
    Traceback (most recent call last):
    reknit.errors.InvalidConfig: setting journal.kind (from code) must be 'disk' or 'memory', not 'tape'
    """

    title: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for one in settings_of(type(self)):
            value = one.read(getattr(self, one.key), f"{self.title}.{one.key}", "code")
            object.__setattr__(self, one.key, value)


# -- reading one value of each type; each raises ValueError or TypeError


def _known(is_known: bool, value: T) -> T:
    if not is_known:
        raise ValueError(value)
    return value


def _text(raw: object) -> str:
    if not isinstance(raw, str):
        raise TypeError(raw)
    return _known(raw.isprintable(), raw)


def _texts(raw: object) -> tuple[str, ...]:
    if isinstance(raw, str):
        return tuple(part.strip() for part in _text(raw).split(",") if part.strip())
    if not isinstance(raw, list | tuple):
        raise TypeError(raw)
    return tuple(_text(part) for part in raw)


def _truth(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    text = _text(raw).lower()
    return _TRUTHS[_known(text in _TRUTHS, text)]


def _integer(raw: object) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int | str):
        raise TypeError(raw)
    return int(raw)


def _number(raw: object) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise TypeError(raw)
    value = float(raw)
    return _known(math.isfinite(value), value)


def _path(raw: object) -> Path:
    return Path(_text(str(raw) if isinstance(raw, Path) else raw)).expanduser()


def _pattern(raw: object) -> Pattern:
    return raw if isinstance(raw, Pattern) else Pattern(_text(raw))


_KINDS: dict[Any, tuple[str, Callable[[object], Any]]] = {
    bool: ("true or false", _truth),
    int: ("integer", _integer),
    float: ("number", _number),
    str: ("text", _text),
    tuple[str, ...]: ("list of text", _texts),
    Path: ("path", _path),
    Pattern: ("pattern", _pattern),
}
_ARTICLES: dict[Any, str] = {int: "an ", float: "a ", tuple[str, ...]: "a ", Path: "a ", Pattern: "a "}
