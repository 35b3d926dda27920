"""How the commands speak: results on stdout, everything else on stderr, an error in one line."""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

import typer

if TYPE_CHECKING:
    from rich.table import Table

FAILED = 1
INTERRUPTED = 130


def say(text: str) -> None:
    """A line beside the results."""
    typer.echo(text, err=True)


def fail(text: object) -> NoReturn:
    """End with one line that says what is wrong."""
    typer.secho(f"error: {text}", err=True, fg=typer.colors.RED)
    raise typer.Exit(FAILED)


def print_json(value: Any, indent: int = 2) -> None:
    """A value as JSON on stdout."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value), indent=indent)
    typer.echo(text.decode())


def log_to_stderr(level: str = "warning", with_time: bool = False) -> None:
    """Let the log be seen, a line an entry."""
    text = "%(asctime)s %(levelname)s %(message)s" if with_time else "%(levelname)s: %(message)s"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lower(text, datefmt="%H:%M:%S"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class _Lower(logging.Formatter):
    """Levels in lower case, as in every other line that we print; one plain line whatever a peer calls itself."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.levelname = record.levelname.lower()
        return plain(super().formatMessage(record))


def events(count: int) -> str:
    """A number of events in words.

    >>> events(1), events(1200)
    ('1 event', '1,200 events')
    """
    return f"{count:,} event" if count == 1 else f"{count:,} events"


def size(count: float) -> str:
    """A number of bytes, short.

    >>> size(0), size(1536), size(5 << 30)
    ('0 B', '1.5 KiB', '5.0 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def duration(seconds: float) -> str:
    """A time span, short.

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
    r"""Text from elsewhere, so that it can't steer the terminal.

    >>> plain("21.5 °C"), plain("a\x1b[2Jb\n")
    ('21.5 °C', 'a\\x1b[2Jb\\n')
    """
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return f"{text[:chars_max]}… ({len(text):,} characters)" if 0 < chars_max < len(text) else text


def cell(text: str, chars_max: int = 0) -> str:
    """The same for a table, where brackets would be read as markup."""
    from rich.markup import escape

    return escape(plain(text, chars_max))


def shown(payload: bytes, chars_max: int = 400) -> str:
    r"""A payload for people: text where it is text, escaped bytes otherwise.

    >>> shown(b"21.5"), shown(b"\xff\x00")
    ('21.5', '\\xff\\x00')
    """
    try:
        return plain(payload.decode(), chars_max)
    except UnicodeDecodeError:
        return plain(repr(payload)[2:-1], chars_max)


def table(texts: tuple[str, ...], numbers: tuple[str, ...], more: tuple[str, ...] = ()) -> Table:
    """A table with these columns: texts, then numbers, then more texts."""
    from rich.table import Table

    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for title in texts + numbers + more:
        made.add_column(title, justify="right" if title in numbers else "left", overflow="fold")
    return made


class Progress:
    """A line on the terminal that counts, for what takes longer; nothing where there is no terminal."""

    INTERVAL_S = 0.5

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._started = self._next = time.monotonic() + self.INTERVAL_S
        self._has_written = False

    def __enter__(self) -> Progress:
        return self

    def show(self, count: int) -> None:
        """So many events are kept by now."""
        now = time.monotonic()
        if not self._is_shown or now < self._next:
            return
        self._next = now + self.INTERVAL_S
        self._has_written = True
        rate = count / (now - self._started + self.INTERVAL_S)
        sys.stderr.write(f"\r{events(count)} kept, {rate:,.0f} a second \x1b[K")
        sys.stderr.flush()

    def __exit__(self, *args: object) -> None:
        if self._has_written:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
