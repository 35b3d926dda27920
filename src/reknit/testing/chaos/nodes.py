"""A node of the campaign: a process whose disk, clock, settings and journal can be changed."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from random import Random

from reknit.errors import LocalError
from reknit.processes.process import NodeProcess, Process
from reknit.testing.chaos.preload import Control

BALLAST = "ballast"
START_S_MAX = 180.0
SETTINGS = {
    "journal.segment_bytes": "512 KiB",
    "transport.reconnect_backoff_s_max": "1",
    "http.retry_ms": "200",
}
"""Small segments, so that damage can hit old ones, and short back-offs, so that a campaign gets far."""
TOPICS = '[[topics]]\npattern = "orders/**"\ndistribution = "balanced"\n'


class ChaosNode(NodeProcess):
    """A node that faults can happen to."""

    def __init__(self, folder: Path, name: str, *options: str, control: Control | None) -> None:
        config = folder / f"{name}.toml"
        config.write_text(TOPICS)
        super().__init__(folder, "--config", str(config), *options, name=name)
        self.control = control
        self.is_small = False
        """Whether its journal is in a file system of its own, which can be filled."""
        self.damaged_segments = 0
        self._base = self.command
        self._settings = dict(SETTINGS)
        self._build_command()

    def add_options(self, *options: str) -> None:
        """Start it with these options, too."""
        self._base = [*self._base, *options]
        self._build_command()

    def change_settings(self, settings: dict[str, str]) -> None:
        """Use these settings from the next start on."""
        self._settings |= settings
        self._build_command()

    def _build_command(self) -> None:
        prefix = [f"{name}={value}" for name, value in (self.control.environ if self.control else {}).items()]
        sets = [word for name, value in self._settings.items() for word in ("--set", f"{name}={value}")]
        self.command = [*(["env", *prefix] if prefix else []), *self._base, *sets]

    def start(self) -> None:
        """Start the node, and return when it listens. It has time: the machine is busy, or its network is down."""
        Process.start(self)
        deadline = time.monotonic() + START_S_MAX
        while not self._listens():
            if not self.is_running or time.monotonic() > deadline:
                raise LocalError(f"{self.name} does not listen: {self.output()[-2000:]}")
            time.sleep(0.05)

    # -- faults

    def suspend(self) -> None:
        """SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT, unless it was killed meanwhile."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)

    def fill_disk(self) -> None:
        """Leave no room for the journal."""
        if self.is_small:
            self._fill(self.data / BALLAST)
        elif self.control is not None:
            self.control.is_disk_full = True
            self.control.write()

    def _fill(self, file: Path) -> None:
        with suppress(OSError), file.open("wb", buffering=0) as ballast:
            for size in (1 << 20, 4096, 1):
                with suppress(OSError):
                    while ballast.write(b"\0" * size):
                        pass

    def free_disk(self) -> None:
        """Make room again."""
        (self.data / BALLAST).unlink(missing_ok=True)
        if self.control is not None:
            self.control.is_disk_full = False
            self.control.write()

    def damage(self, place: float) -> str:
        """Flip a byte of an old segment, while the node does not run. Returns what was done."""
        segments = sorted((self.data / "log").glob("*.log"))[:-2]
        if not segments:
            return "there is no old segment yet"
        rng = Random(place)
        segment = rng.choice(segments)
        offset = rng.randrange(segment.stat().st_size)
        with segment.open("r+b") as file:
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ 0x5A]))
        self.damaged_segments += 1
        return f"byte {offset} of {segment.name}"
