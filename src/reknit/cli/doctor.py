"""`reknit doctor`: look at this machine as a node would use it, and say what to change."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

import typer

from reknit.cli.options import AsJson, ConfigFile, SetSettings
from reknit.cli.output import FAILED, print_json, size
from reknit.cli.settings import parsed

if TYPE_CHECKING:  # the help of other commands does not load the settings
    from reknit.config import Config

SYNCS: Final = 20
SLOW_SYNC_MS: Final = 20.0
"""Single events are acknowledged after one sync: with this, about 50 a second in a row."""
FILES_SPARE: Final = 200
FREE_BYTES_MIN: Final = 1 << 30
EXTRAS: Final = {
    "spark": ("pyspark", "pyarrow", "pandas"),
    "http": ("httptools", "wsproto"),
    "amqp": ("proton",),
    "zenoh": ("zenoh",),
    "crypto": ("cryptography",),
    "jwt": ("joserfc",),
}


class Finding(NamedTuple):
    """What was looked at, how it is, and what to do."""

    what: str
    state: Literal["ok", "warning", "problem"]
    text: str
    do: str = ""


def doctor(json: AsJson = False, config: ConfigFile = None, set_: SetSettings = None) -> None:
    """Look at limits, clock, disk, ports, Java and packages, and say what to change for a node here.

    The exit code is 1 if there is a problem with which a node would not run; warnings do not count.
    """
    from reknit.config import load

    settings = load(config, overrides=parsed(set_ or []))
    found = [finding for look in LOOKS for finding in look(settings)]
    if json:
        print_json([one._asdict() for one in found])
    else:
        _print(found)
    if any(one.state == "problem" for one in found):
        raise typer.Exit(FAILED)


def _print(found: list[Finding]) -> None:
    from reknit.cli.tables import cell, console, table

    colours = {"ok": "green", "warning": "yellow", "problem": "red"}
    made = table(("", "what", "how it is"), (), ("what to do",))
    for one in found:
        state = f"[{colours[one.state]}]{one.state}[/]"
        made.add_row(state, cell(one.what), cell(one.text), cell(one.do))
    console().print(made)


def _config(config: Config) -> Iterator[Finding]:
    from reknit.cli.config import unreadable

    problems = list(unreadable(config))
    for name, why in problems:
        yield Finding("settings", "problem", f"{name}: {why}", "create the file, or correct the setting")
    if not problems:
        yield Finding("settings", "ok", "valid")


def _files(config: Config) -> Iterator[Finding]:
    try:
        import resource
    except ImportError:  # not on this system
        return
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    needed = config.limits.connections_max + FILES_SPARE
    if most in (resource.RLIM_INFINITY, -1) or most >= needed:
        yield Finding("open files", "ok", f"{most:,} allowed, {needed:,} may be needed")
    else:
        text = f"{most:,} allowed, {needed:,} may be needed (limits.connections_max)"
        yield Finding("open files", "warning", text, f"ulimit -n {needed}, or LimitNOFILE= in the unit")


def _clock(config: Config) -> Iterator[Finding]:
    if time.time() < 1_700_000_000:
        yield Finding(
            "clock", "problem", time.strftime("%Y-%m-%d %H:%M:%S"), "set the clock: events have times"
        )
    elif Path("/run/systemd/timesync/synchronized").exists():
        yield Finding("clock", "ok", "synchronized by systemd-timesyncd")
    elif any(Path(place).exists() for place in ("/run/chrony", "/var/lib/ntp", "/run/ntpd.pid")):
        yield Finding("clock", "ok", "chrony or ntpd is there")
    else:
        text = "nothing that keeps it right was found"
        yield Finding(
            "clock", "warning", text, "run chrony or systemd-timesyncd: ttl and retention use the clock"
        )


def _disk(config: Config) -> Iterator[Finding]:
    if config.journal.kind == "memory":
        yield Finding("disk", "warning", "journal.kind is memory", "a restart forgets everything; use disk")
        return
    place = Path(config.node.data_dir).absolute()
    while not place.exists():
        place = place.parent
    if not os.access(place, os.W_OK):
        yield Finding(
            "disk", "problem", f"{place} can't be written", "choose another node.data_dir, or its owner"
        )
        return
    room = os.statvfs(place)
    free = room.f_bavail * room.f_frsize
    state: Literal["ok", "warning"] = "ok" if free >= FREE_BYTES_MIN else "warning"
    yield Finding(
        "disk",
        state,
        f"{size(free)} free in {place}",
        "" if state == "ok" else "free space, or set retention",
    )
    took_ms = _sync_ms(place)
    state = "ok" if took_ms <= SLOW_SYNC_MS else "warning"
    do = "" if state == "ok" else "publish many events at a time, or use a disk with a faster sync"
    yield Finding("disk sync", state, f"{took_ms:.2f} ms (median of {SYNCS})", do)


def _sync_ms(place: Path) -> float:
    """How long it takes to make 4 KiB durable here."""
    path = place / f".reknit-doctor-{os.getpid()}"
    took: list[float] = []
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    try:
        for _ in range(SYNCS):
            began = time.perf_counter()
            os.write(file, bytes(4096))
            os.fdatasync(file)
            took.append(time.perf_counter() - began)
    finally:
        os.close(file)
        path.unlink()
    return sorted(took)[SYNCS // 2] * 1e3


def _ports(config: Config) -> Iterator[Finding]:
    doors = {"node.listen": list(config.node.listen)}
    for name in ("http", "amqp"):
        if listen := getattr(config, name).listen:
            doors[f"{name}.listen"] = [f"tcp://{listen}"]
    for setting, urls in doors.items():
        for url in urls:
            parts = urlsplit(url)
            if parts.hostname and parts.port:
                yield _port(setting, parts.hostname, parts.port)


def _port(setting: str, host: str, port: int) -> Finding:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            text = f"{host}:{port}: {error.strerror}"
            return Finding(setting, "warning", text, "a node may run there already; else use another address")
    return Finding(setting, "ok", f"{host}:{port} is free")


def _packages(config: Config) -> Iterator[Finding]:
    from importlib.util import find_spec

    wanted = {"http": bool(config.http.listen), "amqp": bool(config.amqp.listen)}
    wanted["zenoh"] = bool(config.recovery.zenoh_listen or config.recovery.zenoh_connect)
    for extra, modules in EXTRAS.items():
        missing = [name for name in modules if find_spec(name) is None]
        if not missing:
            yield Finding(f"extra {extra}", "ok", "installed")
        elif wanted.get(extra):
            text = f"{', '.join(missing)} is missing, and the settings need it"
            yield Finding(f"extra {extra}", "problem", text, f"pip install 'reknit[{extra}]'")
        else:
            yield Finding(f"extra {extra}", "ok", "not installed, and not needed")


def _java(config: Config) -> Iterator[Finding]:
    from importlib.util import find_spec

    if find_spec("pyspark") is None:
        return
    from reknit.spark.runtime.java import JavaNotFound, find_java

    try:
        yield Finding("Java", "ok", f"for Spark: {find_java()}")
    except JavaNotFound as error:
        yield Finding("Java", "warning", "none that Spark can use", str(error))


LOOKS: Final[tuple[Callable[[Config], Iterator[Any]], ...]] = (
    _config,
    _files,
    _clock,
    _disk,
    _ports,
    _packages,
    _java,
)
"""What is looked at, in this order."""
