"""The output of commands: results on stdout, everything else on stderr, an error as one line."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, NoReturn

import typer

FAILED = 1
NOT_ASKED = 2
"""The exit code of a command whose 1 means something else, if it could not ask."""
INTERRUPTED = 130


def say(text: str) -> None:
    """Print a line on stderr."""
    typer.echo(text, err=True)


def fail(text: object, code: int = FAILED) -> NoReturn:
    """Print one line that says what is wrong, and exit with code 1, or another one."""
    typer.secho(f"error: {text}", err=True, fg=typer.colors.RED)
    raise typer.Exit(code)


def explained(error: Exception) -> str:
    """What an error that ends a command says."""
    from reknit.errors import NotConnected, ReknitError, TlsFailed

    if isinstance(error, NotConnected) and not isinstance(error, TlsFailed):
        return f"no node at {error.url} ({error.why}): start one with `reknit up`"
    if isinstance(error, OSError) and not isinstance(error, ReknitError):
        return f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
    return str(error)


def print_json(value: Any, indent: int = 2) -> None:
    """Print a value as JSON on stdout."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value), indent=indent)
    typer.echo(text.decode())


def log_to_stderr(level: str = "warning", with_time: bool = False, as_json: bool = False) -> None:
    """Write the log to stderr, one line per entry."""
    text = "%(asctime)s %(levelname)s %(message)s" if with_time else "%(levelname)s: %(message)s"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if as_json else _Lower(text, datefmt="%Y-%m-%d %H:%M:%S"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class _Lower(logging.Formatter):
    """Levels in lower case, like all other output, and one line of plain text, whatever a name contains."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.levelname = record.levelname.lower()
        return plain(super().formatMessage(record))


class _Json(logging.Formatter):
    """One JSON object a line: `time` (UTC), `level`, `logger`, `message`, and `error` with a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        import msgspec

        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        entry = {
            "time": time,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(entry).decode()


def counted(count: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "member"), counted(1200, "member")
    ('1 member', '1,200 members')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def events(count: int) -> str:
    """A number of events.

    >>> events(1), events(1200)
    ('1 event', '1,200 events')
    """
    return counted(count, "event")


def dead_letters(count: int) -> str:
    """A number of dead letters.

    >>> dead_letters(1), dead_letters(20)
    ('1 dead letter', '20 dead letters')
    """
    return counted(count, "dead letter")


def size(count: float) -> str:
    """A number of bytes, rounded.

    >>> size(0), size(1536), size(5 << 30)
    ('0 B', '1.5 KiB', '5.0 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def duration(seconds: float) -> str:
    """A time span, rounded.

    >>> duration(7.2), duration(3700), duration(200_000)
    ('7 s', '1 h 1 min', '2 d 7 h')
    """
    parts: list[str] = []
    rest = int(seconds)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, length)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def plain(text: str, chars_max: int = 0) -> str:
    r"""Text from elsewhere, escaped so that it cannot control the terminal.

    >>> plain("21.5 °C"), plain("a\x1b[2Jb\n")
    ('21.5 °C', 'a\\x1b[2Jb\\n')
    """
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return f"{text[:chars_max]}… ({len(text):,} characters)" if 0 < chars_max < len(text) else text


def shown(payload: bytes, chars_max: int = 400) -> str:
    r"""A payload for people: as text if it is UTF-8, as escaped bytes otherwise.

    >>> shown(b"21.5"), shown(b"\xff\x00")
    ('21.5', '\\xff\\x00')
    """
    try:
        return plain(payload.decode(), chars_max)
    except UnicodeDecodeError:
        return plain(repr(payload)[2:-1], chars_max)
