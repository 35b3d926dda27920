"""google.rpc codes as AMQP conditions, and back."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from typing import Final, NamedTuple

from reknit.gateway.amqp.codec.encoding import MalformedValue, Symbol, decode
from reknit.outcome import Code

INTERNAL_ERROR: Final = "amqp:internal-error"
SIZE_EXCEEDED: Final = "amqp:link:message-size-exceeded"
DECODE_ERROR: Final = "amqp:decode-error"
FORCED: Final = "amqp:connection:forced"
DETACH_FORCED: Final = "amqp:link:detach-forced"

CONDITION_OF: Final[dict[Code, str]] = {
    Code.CANCELLED: "reknit:cancelled",
    Code.UNKNOWN: "reknit:unknown",
    Code.INVALID_ARGUMENT: "amqp:invalid-field",
    Code.DEADLINE_EXCEEDED: "reknit:deadline-exceeded",
    Code.NOT_FOUND: "amqp:not-found",
    Code.ALREADY_EXISTS: "reknit:already-exists",
    Code.PERMISSION_DENIED: "amqp:unauthorized-access",
    Code.RESOURCE_EXHAUSTED: "amqp:resource-limit-exceeded",
    Code.FAILED_PRECONDITION: "amqp:precondition-failed",
    Code.ABORTED: "amqp:resource-locked",
    Code.OUT_OF_RANGE: "reknit:out-of-range",
    Code.UNIMPLEMENTED: "amqp:not-implemented",
    Code.INTERNAL: INTERNAL_ERROR,
    Code.UNAVAILABLE: "reknit:unavailable",
    Code.DATA_LOSS: "reknit:data-loss",
    Code.UNAUTHENTICATED: "reknit:unauthenticated",
}
"""Each code has its own condition, so that it translates back to the same code."""

_ALSO: Final[dict[str, Code]] = {
    DECODE_ERROR: Code.INVALID_ARGUMENT,
    "amqp:not-allowed": Code.PERMISSION_DENIED,
    "amqp:illegal-state": Code.FAILED_PRECONDITION,
    "amqp:resource-deleted": Code.NOT_FOUND,
    "amqp:frame-size-too-small": Code.RESOURCE_EXHAUSTED,
    SIZE_EXCEEDED: Code.RESOURCE_EXHAUSTED,
    "amqp:link:transfer-limit-exceeded": Code.RESOURCE_EXHAUSTED,
    "amqp:link:stolen": Code.ABORTED,
    DETACH_FORCED: Code.UNAVAILABLE,
    FORCED: Code.UNAVAILABLE,
}
CODE_OF: Final[dict[str, Code]] = {condition: code for code, condition in CONDITION_OF.items()} | _ALSO


def condition_of(code: int) -> str:
    """The condition for a code.

    >>> condition_of(Code.RESOURCE_EXHAUSTED), condition_of(99)
    ('amqp:resource-limit-exceeded', 'reknit:unknown')
    """
    known = Code(code) if code in Code._value2member_map_ else Code.UNKNOWN
    return CONDITION_OF.get(known, CONDITION_OF[Code.UNKNOWN])


def code_of(condition: str) -> Code:
    """The code for a condition. A rejection without a condition is INVALID_ARGUMENT.

    >>> code_of("amqp:not-found").name, code_of("com.example:odd").name, code_of("").name
    ('NOT_FOUND', 'UNKNOWN', 'INVALID_ARGUMENT')
    """
    return CODE_OF.get(condition, Code.UNKNOWN) if condition else Code.INVALID_ARGUMENT


def rejected_text(condition: str, text: str) -> str:
    """The text of a client's rejection, which the fabric passes on. It begins with a condition that has no own code.

    >>> rejected_text("app:bad", "no such order"), rejected_text("amqp:not-found", "no such order")
    ('app:bad: no such order', 'no such order')
    """
    is_plain = not condition or CONDITION_OF.get(code_of(condition)) == condition
    return (text or condition) if is_plain else f"{condition}: {text}"


def rejected_of(code: int, text: str) -> tuple[str, str]:
    """The condition and the text of a rejection, as its receiver gave them.

    >>> rejected_of(Code.UNKNOWN, "app:bad: no such order"), rejected_of(Code.NOT_FOUND, "no such order")
    (('app:bad', 'no such order'), ('amqp:not-found', 'no such order'))
    """
    found = _CONDITION_TEXT.fullmatch(text)
    if found is not None and code_of(found[1]) == code:
        return found[1], found[2]
    return condition_of(code), text


_CONDITION_TEXT: Final = re.compile(r"([\w.-]+(?::[\w.-]+)+): (.*)", re.ASCII | re.DOTALL)


class Modified(NamedTuple):
    """The fields of MODIFIED. `annotations` are as AMQP encodes them; empty without any."""

    is_failed: bool = True
    is_undeliverable: bool = False
    annotations: bytes = b""


ANNOTATIONS_BYTES_MAX: Final = 512
"""Longer annotations of a MODIFIED are not passed on: the text of an outcome is kept in the journal."""


def modified_text(fields: Modified) -> str:
    """The fields of a client's MODIFIED as a text, which the fabric passes on.

    >>> modified_text(Modified(True, True))
    'failed, undeliverable here'
    >>> from reknit.gateway.amqp.codec.encoding import encode
    >>> modified_text(Modified(False, False, encode({Symbol("x-opt-why"): "late"})))
    'not failed; annotations wRICowl4LW9wdC13aHmhBGxhdGU='
    """
    words = _FAILED * fields.is_failed + _UNDELIVERABLE * fields.is_undeliverable
    text = ", ".join(words) or _UNCHANGED
    if not 0 < len(fields.annotations) <= ANNOTATIONS_BYTES_MAX:
        return text
    return f"{text}{_ANNOTATIONS}{b64encode(fields.annotations).decode()}"


_FAILED, _UNDELIVERABLE, _UNCHANGED = ("failed",), ("undeliverable here",), "not failed"
_ANNOTATIONS: Final = "; annotations "


def modified_of(text: str) -> Modified:
    """The fields of MODIFIED. Any other text, as for an event in doubt, means failed.

    >>> modified_of("undeliverable here"), modified_of("the path was lost").is_failed
    (Modified(is_failed=False, is_undeliverable=True, annotations=b''), True)
    >>> modified_of("failed; annotations wQYCowFhVQE=").annotations.hex(" ")
    'c1 06 02 a3 01 61 55 01'
    """
    words, _, encoded = text.partition(_ANNOTATIONS)
    is_undeliverable = words.endswith(_UNDELIVERABLE[0])
    is_failed = words not in (_UNDELIVERABLE[0], _UNCHANGED)
    return Modified(is_failed, is_undeliverable, _annotations(encoded))


def _annotations(encoded: str) -> bytes:
    """The annotations in a text, if they are: any subscriber may write such a text."""
    try:
        data = b64decode(encoded, validate=True)
        found, end = decode(data) if data else ({}, 0)
    except (ValueError, MalformedValue):
        return b""
    is_map = isinstance(found, dict) and all(isinstance(key, Symbol) for key in found)
    return data if is_map and end == len(data) else b""
