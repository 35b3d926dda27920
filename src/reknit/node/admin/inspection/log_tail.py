"""The last lines of this process's log, in memory."""

from __future__ import annotations

import logging
from collections import deque
from typing import Any, Final

LINES_MAX: Final = 500
TEXT_CHARS_MAX: Final = 2_000


class LogTail(logging.Handler):
    """Keeps what is logged below a logger, as far as its level lets it through.

    >>> tail, log = LogTail(), logging.getLogger("reknit.example")
    >>> log.addHandler(tail)
    >>> log.error("the disk is full")
    >>> [(row["level"], row["text"]) for row in tail.rows(10)]
    [('error', 'the disk is full')]
    """

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[dict[str, Any]] = deque(maxlen=LINES_MAX)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        try:
            text = record.getMessage()
        except Exception:  # a line that can't be written is reported by the other handlers
            text = str(record.msg)
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text}: {record.exc_info[1]!r}"
        self._lines.append(
            {
                "at_us": int(record.created * 1e6),
                "level": record.levelname.lower(),
                "logger": record.name,
                "text": text[:TEXT_CHARS_MAX],
            }
        )

    def rows(self, limit: int) -> list[dict[str, Any]]:
        """The newest lines, the newest first."""
        return list(self._lines)[::-1][: max(limit, 0)]


_TAIL: Final = LogTail()


def log_tail() -> LogTail:
    """The tail of this process, which is kept from the first call on."""
    logger = logging.getLogger("reknit")
    if _TAIL not in logger.handlers:
        logger.addHandler(_TAIL)
    return _TAIL
