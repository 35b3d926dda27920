"""Dead letters: list them, publish them again, drop them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from reknit.console.asking import Asking
from reknit.console.events import payload_of
from reknit.dead_letter import DeadLetterContent, DeadLetterFilter
from reknit.errors import Refused
from reknit.fields import NUMBER_MAX, Number
from reknit.outcome import Code

Values = Mapping[str, Any]


async def letters(node: Asking, values: Values) -> Any:
    """A page of dead letters; without what is in them for those who may only watch."""
    wanted = {name: values[name] for name in DeadLetterFilter.__struct_fields__}
    args = {"wanted": wanted, "limit": values["limit"], "before": values["before"] or NUMBER_MAX}
    is_hidden = False
    try:
        body = await node.ask("dead_letters", **args)
    except Refused as error:
        if error.code != Code.PERMISSION_DENIED:
            raise
        body, is_hidden = await node.ask("dead_letters", **args, payloads=False), True
    return {
        **body,
        "is_hidden": is_hidden,
        "letters": [_letter(number, row) for number, row in body["letters"]],
    }


def _letter(number: int, row: Any) -> dict[str, Any]:
    letter = msgspec.convert(row, DeadLetterContent)
    return {
        "number": number,
        "id": letter.id,
        "topic": letter.topic,
        "time_us": letter.time_us,
        "subscriber": letter.subscriber,
        "code": _code_name(letter.code),
        "reason": letter.reason,
        "text": letter.text,
        "attempts": letter.attempts,
        "node": letter.node,
        "path": letter.path,
        "died_us": letter.died_us,
        "redriven": letter.redriven,
        "original": letter.original,
        "headers": letter.columns.get("headers") or {},
        "payload": payload_of(letter.payload) if letter.has_payload else None,
    }


def _code_name(code: int) -> str:
    return Code(code).name if code in Code._value2member_map_ else str(code)


class DropOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which dead letters: a page of those that match. Continue after `next` until `is_end`."""

    wanted: DeadLetterFilter = DeadLetterFilter()
    after: Number = 0
    stop: Number = NUMBER_MAX
    limit: Number = 1_000
    is_dry: bool = False
    """Only count them."""


class RedriveOrder(DropOrder, frozen=True, forbid_unknown_fields=True):
    """The same, to publish them again."""

    clears_ttl: bool = False
    """Without their time to live, which may be over."""
    to: Literal["all", "subscriber"] = "all"
    """To every subscriber of their topics, or to the one that each failed at."""


async def redrive(node: Asking, values: Values) -> Any:
    """Publish a page of dead letters again."""
    return await node.ask("redrive", **msgspec.to_builtins(values["body"]))


async def drop(node: Asking, values: Values) -> Any:
    """Drop a page of dead letters."""
    return await node.ask("drop_dead_letters", **msgspec.to_builtins(values["body"]))
