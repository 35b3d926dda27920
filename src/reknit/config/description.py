"""Every setting as text, for people: `reknit config show` and the reference page."""

from __future__ import annotations

from typing import NamedTuple

from reknit.config.config import KNOWN, NO_RULE, Config
from reknit.config.settings import Setting, settings_of
from reknit.config.toml import toml_value
from reknit.config.topics import TopicSettings

__all__ = ["SettingRow", "describe"]

HIDDEN = "(hidden)"
"""Stands for a secret."""


class SettingRow(NamedTuple):
    """A setting for people. Values are written as in the file.

    >>> describe()[0].type
    'text'
    """

    name: str
    value: str
    default: str
    origin: str
    type: str
    unit: str
    doc: str


def describe(config: Config | None = None) -> list[SettingRow]:
    """Every setting with its value, default, origin, type, unit and doc, in the order of the sections.

    >>> [row.doc for row in describe() if row.name == "limits.batch_bytes"]
    ['size at which single publishes are sent as a batch']
    """
    config = config or Config()
    rows = [_row(name, config.get(name), one, config.origin(name)) for name, one in KNOWN.items()]
    rules = {f"topics[{at}]": rule for at, rule in enumerate(config.topics)} or {"topics[]": NO_RULE}
    origin = dict(config.origins).get("topics", "code" if config.topics else "default")
    for title, rule in rules.items():
        found = [(one, getattr(rule, one.key)) for one in settings_of(TopicSettings)]
        rows += [_row(f"{title}.{one.key}", value, one, origin) for one, value in found]
    return rows


def _row(name: str, value: object, one: Setting, origin: str) -> SettingRow:
    shown = HIDDEN if one.secret and value else value
    return SettingRow(
        name, toml_value(shown), toml_value(one.default), origin, one.type_text, one.unit, one.doc
    )
