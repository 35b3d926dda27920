"""The node that is fuzzed: a process of its own, with a canary beside it. Its log and its memory are watched."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec

from reknit.processes.process import NodeProcess, free_port, start_tied
from reknit.testing.fabric.fabric import SHARED_MEMORY
from reknit.testing.fabric.programs.amqp.client import is_available
from reknit.testing.fuzz.canary import STUCK_S, CanaryReport

SETTINGS: Final = (
    "retention.bytes_max=64 MiB",
    "retention.protect_unsettled=false",
    "journal.segment_bytes=4 MiB",
    "transport.hello_timeout_s=2",
    "http.request_timeout_s=2",
    "http.trusted_proxies=127.0.0.1",
    "amqp.hello_timeout_s=2",
    "dispatch.lease_s=1",
    "dispatch.retry_backoff_s_min=0.05",
)
"""Its journal stays small, and peers that say nothing are closed soon."""
ZENOH_SETTINGS: Final = ("recovery.patience_s=1", "recovery.zenoh_heartbeat_s=0.5")
RULES: Final = """\
[[topics]]
pattern = "jobs/**"
distribution = "balanced"
[[topics]]
pattern = "plant/b"
order = "source"
attempts_max = 3
[[topics]]
pattern = "car/**"
ttl_ms = 500
"""
ERRORS: Final = (
    "Traceback (most recent call last)",
    "internal error",
    "never retrieved",
    "Fatal Python error",
)
STUCK: Final = "stuck"


class FuzzedNode:
    """A node in a folder of its own, while in its `with`."""

    def __init__(self, door: str = "", *, has_canary: bool = True) -> None:
        """`door` is the port that is fuzzed: a node joins a Zenoh network only for this."""
        self._folder = Path(
            tempfile.mkdtemp(prefix="fuzz-", dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None)
        )
        (self._folder / "fuzz.toml").write_text(RULES)
        self.ports = {"http": free_port(), "metrics": free_port()} | (
            {"amqp": free_port()} if is_available() else {}
        )
        gateways = [text for name, port in self.ports.items() for text in (f"--{name}", f"127.0.0.1:{port}")]
        settings = [text for one in (*SETTINGS, *self._joined(door)) for text in ("--set", one)]
        config = ["--config", str(self._folder / "fuzz.toml")]
        self._process = NodeProcess(self._folder, *config, *gateways, *settings)
        self.ports["tcp"] = self._process.port
        self._has_canary = has_canary
        self._canary: subprocess.Popen[Any] | None = None
        self._read = 0

    def _joined(self, door: str) -> list[str]:
        if door != "zenoh":
            return []
        self.ports["zenoh"] = free_port()
        return [f"recovery.zenoh_listen=tcp/127.0.0.1:{self.ports['zenoh']}", *ZENOH_SETTINGS]

    @property
    def url(self) -> str:
        return self._process.url

    def __enter__(self) -> FuzzedNode:
        self._process.start()
        if self._has_canary:
            command = [sys.executable, "-m", "reknit.testing.fuzz.canary", self.url]
            self._canary = start_tied(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert self._canary.stdout is not None
            self._canary.stdout.readline()  # it is ready
        return self

    def __exit__(self, *args: object) -> None:
        if self._canary is not None:
            self._canary.kill()
            self._canary.communicate()
        self._process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def is_running(self) -> bool:
        return self._process.is_running

    @property
    def rss_bytes(self) -> int:
        """Its resident memory; 0 where the system does not say."""
        try:
            pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        except OSError:
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")

    @property
    def stalls(self) -> int:
        """How often its event loop was stuck for more than a second."""
        return self._process.output().count(STUCK)

    def problem(self) -> str:
        """What is wrong since the last call: the node ended, or logged an error of its own."""
        if not self._process.is_running:
            return f"the node ended with {self._process.code}: {self._process.output()[-4000:]}"
        return self._logged_error()

    def _logged_error(self) -> str:
        """What the node logged since the last call, if there is an error of its own in it."""
        size = self._process.log.stat().st_size
        if size == self._read:
            return ""
        with self._process.log.open("rb") as log:
            log.seek(self._read)
            text = log.read().decode("utf-8", "replace")
        self._read = size
        return text if any(error in text for error in ERRORS) else ""

    def end(self) -> tuple[CanaryReport, str]:
        """Stop the canary and the node. Returns what the canary saw, and what is wrong with the node."""
        report = self._end_canary()
        code = self._process.stop()
        if code:
            return report, f"the node ended with {code}: {self._process.output()[-4000:]}"
        return report, self._logged_error()

    def _end_canary(self) -> CanaryReport:
        if self._canary is None:
            return CanaryReport()
        try:
            out, _ = self._canary.communicate(b"", timeout=2 * STUCK_S)
        except subprocess.TimeoutExpired:
            return CanaryReport(problems=["the canary did not end"])
        try:
            return msgspec.json.decode(out, type=CanaryReport)
        except msgspec.DecodeError:
            return CanaryReport(problems=[f"the canary crashed and said {out[-2000:]!r}"])
