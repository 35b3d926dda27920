"""What a mutant is: one piece of text in one module, and the faulty text that replaces it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from reknit.testing.mutants.planting import NotPlanted, replaced

SIMULATIONS: Final = {
    "core": "reknit.testing.simulation:run",
    "fabric": "reknit.testing.fabric.run:run",
    "group": "reknit.testing.group.simulation:run",
}
"""By name: the function that runs a seed and returns a verdict with `problems`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A fault, and the promise that it breaks.

    >>> Mutant(name="x", module="reknit.protocol.publish.intake", old="a", new="b", breaks="…").capability
    'protocol/publish'
    """

    name: str
    module: str
    """The module that it changes."""
    old: str
    """Text that occurs exactly once in the module."""
    new: str
    """The text in its place."""
    breaks: str
    """The promise that does not hold any more."""
    simulation: str = "core"
    """Which of `SIMULATIONS` is to find it."""

    @property
    def capability(self) -> str:
        """The package that it changes."""
        return "/".join(self.module.split(".")[1:-1])

    def check(self) -> None:
        """Raise `UnknownMutant` unless its text occurs once, and the module still compiles with the fault in it."""
        spec = find_spec(self.module)
        if spec is None or spec.origin is None:
            raise UnknownMutant(self.name, f"there is no module {self.module}")
        try:
            source = replaced(Path(spec.origin).read_text(encoding="utf-8"), self.old, self.new)
            compile(source, spec.origin, "exec", dont_inherit=True)
        except (NotPlanted, SyntaxError) as error:
            raise UnknownMutant(self.name, f"{self.module}: {error}") from None


class UnknownMutant(ValueError):
    """A mutant can't be planted, because it does not exist or its text is no longer in the module."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"Invalid mutant {name!r}: {problem}")
