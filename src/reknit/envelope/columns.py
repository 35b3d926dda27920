"""Attributes in a batch: type, priority and ttl in its header, the rest as columns, and a flag that marks the batch.

The address that the topic implies is not stored again: the source of published events, the sink of all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol
from uuid import UUID

from reknit.address import Address
from reknit.batch_layout import FLAG_ATTRIBUTES, TYPE_PUBLISH, Head
from reknit.envelope.attributes import NO_EXTENSIONS, Attributes, Format, Kind, Priority, check
from reknit.errors import InvalidAddress, InvalidAttributes, MalformedFrame
from reknit.outcome import Code, Reason

ID: Final = "up.id"
SOURCE: Final = "up.source"


class EventColumns(Protocol):
    """The part of a batch that attributes are read from: `reknit.batch.Batch` is one."""

    @property
    def head(self) -> Head: ...

    def columns(self) -> dict[str, list[Any]]: ...


def _is(kind: type[Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError(f"{value!r:.60} is not a value of type {kind.__name__}")
        return value

    return read


def _uuid(value: Any) -> UUID:
    return UUID(bytes=_is(bytes)(value))


def _extensions(value: Any) -> Any:
    for name, text in _is(dict)(value).items():
        if not isinstance(name, str) or not isinstance(text, str | int):
            raise ValueError(f"{name!r:.60} is not a text or a number")
    return value


_OTHERS: Final[dict[str, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]]] = {
    "up.level": ("permission_level", int, _is(int)),
    "up.status": ("commstatus", int, lambda value: Code(_is(int)(value))),
    "up.reqid": ("reqid", lambda value: value.bytes, _uuid),
    "up.token": ("token", str, _is(str)),
    "up.trace": ("traceparent", str, _is(str)),
    "up.format": ("payload_format", int, lambda value: Format(_is(int)(value))),
    "up.more": ("extensions", dict, _extensions),
}
"""By column: the attribute, how it is written, and how it is read."""
_DEFAULTS: Final[dict[str, Any]] = {"payload_format": Format.UNSPECIFIED, "extensions": NO_EXTENSIONS}


def fields_of(attributes: Sequence[Attributes]) -> dict[str, Any]:
    """The arguments of `Batch.build` for events with these attributes: one topic, one type and one priority."""
    first = attributes[0]
    columns: dict[str, list[Any]] = {ID: [one.id.bytes for one in attributes]}
    if first.type is not Kind.PUBLISH:
        columns[SOURCE] = [str(one.source) for one in attributes]
    for column, (name, write, _) in _OTHERS.items():
        default = _DEFAULTS.get(name)
        values = [getattr(one, name) for one in attributes]
        if any(value != default for value in values):
            columns[column] = [None if value == default else write(value) for value in values]
    if any(one.ttl_ms != first.ttl_ms for one in attributes):
        columns["ttl"] = [one.ttl_ms for one in attributes]
    return {
        "type": int(first.type),
        "priority": int(first.priority),
        "ttl_ms": first.ttl_ms,
        "columns": columns,
        "flags": FLAG_ATTRIBUTES,
    }


def has_attributes(batch: EventColumns) -> bool:
    """Whether a batch's events carry attributes."""
    return bool(batch.head.flags & FLAG_ATTRIBUTES)


def read_attributes(
    batch: EventColumns,
    start: int = 0,
    stop: int | None = None,
    columns: Mapping[str, list[Any]] | None = None,
) -> list[Attributes]:
    """The attributes of a batch's events, by index, each validated. Raises `InvalidAttributes`.

    A caller that has decoded the columns passes them.
    """
    if not has_attributes(batch):
        if batch.head.type != TYPE_PUBLISH:
            raise InvalidAttributes("id", f"is missing on an event of type {batch.head.type}")
        return []
    columns = batch.columns() if columns is None else columns
    if ID not in columns:
        raise InvalidAttributes("id", "is missing")
    shared = _shared(batch)
    rows = range(start, batch.head.count if stop is None else stop)
    return [check(_read(shared, columns, row)) for row in rows]


def read_loosely(batch: EventColumns) -> list[Attributes | None]:
    """The attributes of a batch's events, valid or not; None for those that can't be read."""
    several: list[Attributes | None] = []
    try:
        columns, shared = batch.columns(), _shared(batch)
    except (InvalidAttributes, MalformedFrame):
        return several
    for row in range(batch.head.count):
        try:
            several.append(_read(shared, columns, row))
        except InvalidAttributes:
            several.append(None)
    return several


def _shared(batch: EventColumns) -> dict[str, Any]:
    """The attributes that all events share, from the header."""
    head = batch.head
    try:
        kind, priority = Kind(head.type), Priority(head.priority)
        address = Address.from_topic(head.topic)
    except ValueError as error:
        name = "topic" if isinstance(error, InvalidAddress) else "type or priority"
        raise InvalidAttributes(name, f"is not a uProtocol value: {error}") from None
    end = "source" if kind is Kind.PUBLISH else "sink"
    return {"type": kind, "priority": priority, "ttl_ms": head.ttl_ms, end: address}


def _read(shared: dict[str, Any], columns: Mapping[str, list[Any]], row: int) -> Attributes:
    found = dict(shared)
    column = ID
    try:
        found["id"] = _uuid(columns[ID][row])
        if "source" not in found:
            column = SOURCE
            found["source"] = Address.parse(_is(str)(columns[SOURCE][row]))
        for column, (name, _, read) in _OTHERS.items():
            value = columns[column][row] if column in columns else None
            if value is not None:
                found[name] = read(value)
    except (KeyError, ValueError) as error:
        raise InvalidAttributes(column.partition(".")[2], f"can't be read: {error}") from None
    if "ttl" in columns:
        found["ttl_ms"] = columns["ttl"][row]
    return Attributes(**found)


def problem_with(batch: EventColumns, now_ms: int, ahead_ms_max: int) -> tuple[Code, Reason, str] | None:
    """Why a batch with attributes is refused: invalid attributes, or an id from too far in the future. None: it is
    valid."""
    try:
        for one in read_attributes(batch):
            if one.time_ms > now_ms + ahead_ms_max:
                ahead_ms = one.time_ms - now_ms
                raise InvalidAttributes(
                    "id", f"is {ahead_ms} ms ahead of the node's clock; the limit is {ahead_ms_max} ms"
                )
    except InvalidAttributes as error:
        return Code.INVALID_ARGUMENT, Reason.MALFORMED, str(error)
    return None
