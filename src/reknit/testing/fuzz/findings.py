"""What a campaign found, and what it reports: per target the inputs, the findings, the canary and the memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from reknit.testing.fuzz.canary import CanaryReport

Advance = Callable[[int], None]
"""Called with how many inputs were tried since the last call."""

_PLACE: Final = re.compile(r'File "(?:[^"]*?/)?(reknit/[^"]+)", line \d+, in (\S+)')
_ERROR: Final = re.compile(
    r"^(?:[a-z_]+\.)*([A-Z]\w+(?:Error|Exception|Failed|Interrupt|Corrupt|Gone|Frame)?)(?::|$)", re.M
)


class Finding(msgspec.Struct):
    """Something that must not happen, and the smallest input that makes it happen."""

    target: str
    what: str
    """In one line. Two findings with the same line are the same."""
    text: str
    path: str = ""
    """The file with the input."""

    @property
    def command(self) -> str:
        """The command that replays it."""
        return f"python -m reknit.testing.fuzz --replay {self.path}"


class TargetReport(msgspec.Struct):
    """How one target did."""

    target: str
    inputs: int = 0
    seconds: float = 0.0
    findings: list[Finding] = []
    canary: CanaryReport | None = None
    growth_bytes: int = 0
    """How much the memory of the node, or of the process that tried the inputs, grew after the first of them."""
    stalls: int = 0
    """How often the node's event loop was stuck for more than a second."""
    left_out: str = ""
    """Why it was not tried."""

    def describe(self) -> str:
        """In one line."""
        if self.left_out:
            return f"{self.target:<10} left out: {self.left_out}"
        parts = [
            f"{self.target:<10}{self.inputs:>9,} inputs",
            f"{self.seconds:>6.0f} s",
            f"{len(self.findings)} findings",
        ]
        parts.append(f"memory {self.growth_bytes / (1 << 20):+.0f} MiB")
        if self.canary is not None:
            seen = f"{self.canary.received:,} of {self.canary.published:,}"
            parts.append(f"canary {seen}, worst delay {self.canary.worst_s * 1000:.0f} ms")
        if self.stalls:
            parts.append(f"{self.stalls} stalls")
        return ", ".join(parts)


def signature(text: str) -> str:
    """What a log or a traceback says, in one line that is the same for the same fault.

    >>> signature('Traceback …\\n  File "src/reknit/batch.py", line 7, in parse\\n    x\\nValueError: no')
    'ValueError in parse (reknit/batch.py)'
    """
    _, head, rest = text.partition("Traceback")
    if not head:
        return text.strip().partition("\n")[0][:200]
    error = _ERROR.search(rest)
    places = _PLACE.findall(rest[: error.start()] if error else rest)
    path, function = places[-1] if places else ("?", "?")
    return f"{error[1] if error else 'an error'} in {function} ({path})"
