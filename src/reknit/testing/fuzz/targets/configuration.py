"""Configuration: files, variables of the environment and flags with values of every kind."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Final

from reknit.config import Config, describe
from reknit.config.config import KNOWN
from reknit.config.loader import load
from reknit.errors import InvalidConfig, ReknitError
from reknit.server import build_node
from reknit.testing.fabric.fabric import SHARED_MEMORY
from reknit.testing.fabric.programs.attacks import mutate_bytes
from reknit.testing.fuzz.inputs import Step
from reknit.testing.fuzz.mutations import mutate_order, mutate_text
from reknit.testing.fuzz.targets.target import LocalTarget

VALUES: Final = (
    *(
        "0",
        "1",
        "-1",
        "1.5",
        "nan",
        "inf",
        "1e400",
        "99999999999999999999999",
        "true",
        "false",
        '""',
        '"x"',
        '"64 KiB"',
    ),
    *(
        '"-1 KiB"',
        '"9999999999999999999 TiB"',
        "[]",
        "[1]",
        '["a"]',
        '["a", 1]',
        "{}",
        "{a = 1}",
        "1979-05-27",
        "'''\\n'''",
    ),
    *(
        '"tcp://x:1"',
        '"tcp://[::1"',
        '"tcp://x:99999"',
        '"127.0.0.1:0"',
        '":"',
        '"127.0.0.1:70000"',
        '"plant/**"',
        '"a//b"',
    ),
    *(
        '"ann publish plant/**"',
        '"ann"',
        '"\\u0000"',
        '"\\ud7ff"',
        '"~/x"',
        '"~nobody/x"',
        '"tcp://x:1=0"',
        '"²"',
        '"1_000"',
    ),
    *(
        '"' + "9" * 5000 + '"',
        "0x7fffffffffffffff",
        "-0.0",
        "1e-320",
        '["tcp://127.0.0.1:0", "tls://x"]',
        '["²=²"]',
    ),
)
FILE, ENVIRONMENT, FLAG = "line", "environment", "flag"


class ConfigTarget(LocalTarget):
    """A configuration is read, or refused with the name of the setting."""

    name = "config"

    def __init__(self) -> None:
        place = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        self._folder = tempfile.TemporaryDirectory(prefix="fuzz-config-", dir=place)
        self._path = Path(self._folder.name) / "reknit.toml"

    def __exit__(self, *args: object) -> None:
        self._folder.cleanup()

    @cached_property
    def lines(self) -> list[bytes]:
        """The lines of a file with all settings."""
        return [
            line.encode() for line in Config().to_toml().splitlines() if line and not line.startswith("#")
        ]

    def make(self, rng: Random) -> tuple[Step, ...]:
        steps = [Step(FILE, line) for line in self._file(rng)]
        for _ in range(rng.choice((0, 0, 1, 2))):
            name = rng.choice(list(KNOWN))
            value = rng.choice(VALUES).strip('"')
            if rng.random() < 0.5:
                steps.append(Step(FLAG, f"{name}={value}".encode()))
            else:
                variable = "REKNIT_" + name.replace(".", "__").upper()
                steps.append(Step(ENVIRONMENT, f"{variable}={value}".encode()))
        return tuple(steps)

    def _file(self, rng: Random) -> list[bytes]:
        lines = self._some(rng)
        return mutate_order(rng, lines, self.lines, _mutate_line) if rng.random() < 0.9 else lines

    def _some(self, rng: Random) -> list[bytes]:
        """A few settings, each under the title of its section; sometimes all."""
        if rng.random() < 0.05:
            return list(self.lines)
        lines: list[bytes] = []
        for name in rng.sample(list(KNOWN), rng.randint(1, 5)):
            section, _, key = name.partition(".")
            lines += [f"[{section}]".encode(), f"{key} = {rng.choice(VALUES)}".encode()]
        if rng.random() < 0.3:
            lines += [
                b"[[topics]]",
                b'pattern = "plant/**"',
                b"attempts_max = " + rng.choice(VALUES).encode(),
            ]
        return lines

    def problem(self, steps: tuple[Step, ...]) -> str:
        self._path.write_bytes(b"\n".join(step.data for step in steps if step.do == FILE))
        environ = dict(_pair(step) for step in steps if step.do == ENVIRONMENT)
        flags: dict[str, object] = dict(_pair(step) for step in steps if step.do == FLAG)
        try:
            config = load(self._path, environ, flags)
        except InvalidConfig as error:
            return "" if str(error) else "an error without a text"
        describe(config)
        return self._again(config)

    def _again(self, config: Config) -> str:
        """What was read can be written without its secret, read again with the same result, and used."""
        config = replace(config, security=replace(config.security, token=""))
        self._path.write_text(config.to_toml(), "utf-8")
        if load(self._path, {}).to_toml() != config.to_toml():
            return "a configuration that was written is not the same when it is read"
        with contextlib.suppress(ReknitError):
            build_node(config)
        return ""


def _pair(step: Step) -> tuple[str, str]:
    name, _, value = step.data.decode("utf-8", "replace").partition("=")
    return name, value


def _mutate_line(rng: Random, line: bytes) -> bytes:
    name, equals, value = line.partition(b" = ")
    match rng.randrange(5):
        case 0:
            return mutate_bytes(rng, line or b"x")
        case 1:
            return (
                mutate_text(rng, name.decode("utf-8", "replace")).encode("utf-8", "replace") + equals + value
            )
        case 2 if equals:
            return name + equals + mutate_bytes(rng, value or b"x")
        case _:
            return name + b" = " + rng.choice(VALUES).encode()
