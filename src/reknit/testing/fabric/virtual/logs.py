"""What the hosts of a simulation log: nothing is shown, and records with a traceback are kept."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class TracebackHandler(logging.Handler):
    """Keeps records of an error that have a traceback."""

    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._found = found
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self._found.append(self.format(record))


@contextmanager
def tracebacks(found: list[str]) -> Iterator[None]:
    """Keep tracebacks that are logged; everything else is silent."""
    logger, manager = logging.getLogger("reknit"), logging.root.manager
    handler = TracebackHandler(found)
    level, disabled, propagate = logger.level, manager.disable, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(disabled)
        logger.setLevel(level)
        logger.propagate = propagate
        logger.removeHandler(handler)
