"""Tells the nodes that a pipeline reads how far it is, for their status. Nobody waits for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any, Final, Self

import msgspec

from reknit.errors import Refused, ReknitError
from reknit.spark.pipeline.progress import Progress
from reknit.spark.source.nodes import NodeLink

__all__ = ["Telling"]

log = logging.getLogger("reknit.spark")

INTERVAL_S: Final = 2.0
TIMEOUT_S: Final = 3.0
_FIGURES: Final = (
    "stage",
    "lag_bytes",
    "batches",
    "settled",
    "lost",
    "late",
    "held",
    "gaps",
    "dead_letters",
    "away",
)


class Telling:
    """A thread of its own, in a `with` block: a node that does not answer holds up nothing, and is tried again."""

    def __init__(
        self,
        progress: Progress,
        id: str,
        lake: str,
        urls: Sequence[str],
        token: str = "",
        tls_ca_file: str = "",
    ) -> None:
        self._progress, self._id, self._lake = progress, id, lake
        self._urls, self._how = urls, (token, TIMEOUT_S, tls_ca_file)
        self._links: dict[str, NodeLink] = {}
        self._deaf: set[str] = set()
        """Nodes that said that they do not want to know."""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reknit-telling", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._is_over.set()
        self._thread.join(TIMEOUT_S * (1 + len(self._urls)))

    def _run(self) -> None:
        while not self._is_over.wait(INTERVAL_S):
            self._tell_all()
        self._tell_all()
        for link in self._links.values():
            link.close()

    def _tell_all(self) -> None:
        word = self._word()
        for url in self._urls:
            if url not in self._deaf:
                self._tell(url, word)

    def _word(self) -> dict[str, Any]:
        figures = msgspec.to_builtins(self._progress.figures)
        batches_s, events_s = self._progress.rates()
        named = {name: figures[name] for name in _FIGURES}
        return {"id": self._id, "lake": self._lake, "batches_s": batches_s, "events_s": events_s, **named}

    def _tell(self, url: str, word: dict[str, Any]) -> None:
        link = self._links.pop(url, None)
        try:
            link = link or NodeLink(url, *self._how)
            link.ask("pipeline", **word)
            self._links[url] = link
        except (ReknitError, OSError) as error:
            if link is not None:
                link.close()
            if isinstance(error, Refused):
                self._deaf.add(url)
                log.warning("%s does not take the pipeline's progress: %s", url, error)
