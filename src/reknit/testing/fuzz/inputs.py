"""An input: the steps that a hostile peer takes, or that are done to a file. It can be saved, replayed and shrunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

OPEN: Final = "open"
"""Leave the connection as it is, and open another one."""
SAY: Final = "say"
"""Send the data."""
HEAR: Final = "hear"
"""Wait for an answer, for a moment."""
END: Final = "end"
"""Send nothing more, and read what still comes."""
ABORT: Final = "abort"
"""Break the connection."""

SHRINKS_MAX: Final = 400
"""How often an input is tried while it is shrunk."""


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is done. What `data` and `at` mean depends on `do`."""

    do: str
    data: bytes = b""
    at: int = 0


class FuzzInput(msgspec.Struct, frozen=True):
    """The steps for one target. `seed` and `number` say how it was made.

    >>> found = FuzzInput("tcp", 7, 1, (Step(SAY, b"RK"), Step(END)))
    >>> FuzzInput.from_text(found.to_text()) == found
    True
    """

    target: str
    seed: int
    number: int
    steps: tuple[Step, ...]

    def to_text(self) -> str:
        """As JSON. Data is in base64."""
        return msgspec.json.format(msgspec.json.encode(self)).decode()

    @classmethod
    def from_text(cls, text: str) -> FuzzInput:
        return msgspec.json.decode(text, type=cls)

    def save(self, folder: Path) -> Path:
        """Write a file into the folder. Returns its path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.target}-{self.seed}-{self.number}.json"
        path.write_text(self.to_text() + "\n")
        return path

    def describe(self) -> str:
        """The steps in words, one a line."""
        return "\n".join(f"  {step.do} {_shown(step)}".rstrip() for step in self.steps)


def _shown(step: Step) -> str:
    text = repr(step.data[:60]) + (f" and {len(step.data) - 60} bytes more" if len(step.data) > 60 else "")
    return " ".join(part for part in (f"at {step.at}" if step.at else "", text if step.data else "") if part)


Fails = Callable[[FuzzInput], bool]


def shrunk(found: FuzzInput, fails: Fails, tries_max: int = SHRINKS_MAX) -> FuzzInput:
    """A smaller input that still fails: with fewer steps, then with shorter data.

    >>> made = FuzzInput("tcp", 0, 0, tuple(Step(SAY, b"%d" % at) for at in range(9)))
    >>> [step.data for step in shrunk(made, lambda one: Step(SAY, b"7") in one.steps).steps]
    [b'7']
    """
    tries = 0
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for smaller in _smaller(found):
            tries += 1
            if tries > tries_max:
                return found
            if fails(smaller):
                found, is_smaller = smaller, True
                break
    return found


def _smaller(found: FuzzInput) -> Iterator[FuzzInput]:
    steps, count = found.steps, len(found.steps)
    size = count // 2
    while size:
        for at in range(0, count, size):
            yield msgspec.structs.replace(found, steps=steps[:at] + steps[at + size :])
        size //= 2
    for at, step in enumerate(steps):
        if len(step.data) > 8:
            half = len(step.data) // 2
            for data in (step.data[:half], step.data[half:], step.data[:-1]):
                less = msgspec.structs.replace(step, data=data)
                yield msgspec.structs.replace(found, steps=(*steps[:at], less, *steps[at + 1 :]))


def load(path: Path) -> FuzzInput:
    """A saved input."""
    return FuzzInput.from_text(path.read_text())
