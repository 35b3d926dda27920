"""Plants one fault into one module, and runs seeds until a simulation finds it.

It runs as a script, in a process of its own and with nothing of reknit imported before the fault is planted, so that
nothing leaks. Its one argument is JSON: module, old, new, simulation, start and seeds; without a module there is no
fault. It prints JSON: the first seed that failed and its first problem, or null.
"""

from __future__ import annotations

import gc
import json
import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any


class NotPlanted(Exception):
    """The fault can't be planted: the text is not there once, or the module was imported before or not at all."""


def replaced(source: str, old: str, new: str) -> str:
    """A module's text with the fault in it. Raises unless the old text occurs exactly once.

    >>> replaced("a = 1", "= 1", "= 2")
    'a = 2'
    """
    count = source.count(old)
    if count != 1:
        raise NotPlanted(f"this text occurs {count} times, and not once: {old!r}")
    if old == new:
        raise NotPlanted(f"the new text is the same: {new!r}")
    return source.replace(old, new)


class MutantLoader(SourceFileLoader):
    """Loads a module with the fault in it. Cached bytecode is not used."""

    def __init__(self, name: str, path: str, old: str, new: str) -> None:
        super().__init__(name, path)
        self._old, self._new = old, new

    def get_code(self, fullname: str) -> CodeType:
        source = replaced(Path(self.path).read_text(encoding="utf-8"), self._old, self._new)
        return compile(source, self.path, "exec", dont_inherit=True)


class MutantFinder(MetaPathFinder):
    """Finds the one module that gets the fault."""

    def __init__(self, module: str, old: str, new: str) -> None:
        if module in sys.modules:
            raise NotPlanted(f"{module} was imported before the fault was planted")
        self._module, self._old, self._new = module, old, new

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            raise NotPlanted(f"there is no module {fullname}")
        spec.loader = MutantLoader(fullname, spec.origin, self._old, self._new)
        return spec

    def check_planted(self) -> None:
        """Raise if the simulation never imports the module."""
        module = sys.modules.get(self._module)
        if module is None or not isinstance(module.__loader__, MutantLoader):
            raise NotPlanted(f"the simulation does not import {self._module}")


def first_found(task: dict[str, Any]) -> tuple[int, str] | None:
    """The first seed that fails with the fault, and its first problem."""
    finder = MutantFinder(task["module"], task["old"], task["new"]) if task["module"] else None
    if finder is not None:
        sys.meta_path.insert(0, finder)
    home, name = task["simulation"].split(":")
    run = getattr(import_module(home), name)
    gc.freeze()
    found = None
    for seed in range(task["start"], task["start"] + task["seeds"]):
        if problems := run(seed).problems:
            found = seed, problems[0]
            break
    if finder is not None:
        finder.check_planted()  # only now: some modules are imported when they are needed
    return found


if __name__ == "__main__":
    print(json.dumps(first_found(json.loads(sys.argv[1]))))
