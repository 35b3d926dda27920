"""The parameters of the console's resources: their types and bounds, which requests and the description share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from reknit.errors import LocalError

TEXT_CHARS_MAX: Final = 1_000
DIGITS_MAX: Final = 30


class Parameter(NamedTuple):
    """One parameter of a resource."""

    name: str
    help: str
    default: int | str = ""
    """Its type is that of the parameter."""
    low: int = 0
    high: int = (1 << 63) - 1
    choices: Sequence[str] = ()

    def read(self, text: str) -> int | str:
        """The value of a text. Raises `LocalError`.

        >>> Parameter("limit", "rows", 100, high=1_000).read("50")
        50
        """
        if isinstance(self.default, str):
            if len(text) > TEXT_CHARS_MAX:
                raise LocalError(f"{self.name} is longer than {TEXT_CHARS_MAX} characters")
            if text and self.choices and text not in self.choices:
                raise LocalError(f"{self.name} can't be {text!r}: choose one of {', '.join(self.choices)}")
            return text
        is_number = text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX
        if not is_number or not self.low <= int(text) <= self.high:
            shown = text[:DIGITS_MAX]
            raise LocalError(f"{self.name} can't be {shown!r}: it is a number from {self.low} to {self.high}")
        return int(text)

    def schema(self) -> dict[str, Any]:
        """Its description for OpenAPI."""
        if isinstance(self.default, str):
            return {"type": "string", **({"enum": list(self.choices)} if self.choices else {})}
        return {"type": "integer", "minimum": self.low, "maximum": self.high, "default": self.default}


LIMIT: Final = Parameter("limit", "the most rows of the answer", 100, high=1_000)
OFFSET: Final = Parameter("offset", "how many rows to pass over", 0, high=100_000)


def read_parameters(
    parameters: Sequence[Parameter], given: Iterable[tuple[str, str]]
) -> Mapping[str, int | str]:
    """The values of all parameters. Raises `LocalError` for one that does not exist, comes twice or is not valid.

    >>> dict(read_parameters([LIMIT, OFFSET], [("limit", "7")]))
    {'limit': 7, 'offset': 0}
    """
    known = {one.name: one for one in parameters}
    values: dict[str, int | str] = {}
    for name, text in given:
        if name not in known:
            names = ", ".join(known) or "none"
            raise LocalError(f"{name!r} is not a parameter of this resource; there are: {names}")
        if name in values:
            raise LocalError(f"{name} is given twice")
        values[name] = known[name].read(text)
    return {name: values.get(name, one.default) for name, one in known.items()}
