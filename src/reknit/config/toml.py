"""Writing settings as TOML."""

from __future__ import annotations

from json import dumps

from reknit.config.settings import Section, Setting, settings_of

__all__ = ["toml_table", "toml_value"]


def toml_table(section: Section) -> str:
    """A section's settings with their docs, as TOML without the header.

    >>> from reknit.config import TopicSettings
    >>> print(toml_table(TopicSettings()).splitlines()[1])
    pattern = "**"
    """
    rows = [(one, getattr(section, one.key)) for one in settings_of(type(section))]
    return "".join(f"# {one.doc}\n{_line(one, value)}\n" for one, value in rows)


def _line(one: Setting, value: object) -> str:
    """A setting with its value. A secret that is set is left out."""
    return f"# {one.key} is set, and hidden" if one.secret and value else f"{one.key} = {toml_value(value)}"


def toml_value(value: object) -> str:
    """A value as TOML.

    >>> toml_value(True), toml_value(("a", "b")), toml_value(0.5)
    ('true', '["a", "b"]', '0.5')
    """
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case tuple():
            return f"[{', '.join(toml_value(part) for part in value)}]"
        case _:
            return dumps(str(value), ensure_ascii=False)
