"""The nodes of a pipeline, as its driver sees them: which are away, and what their dead-letter topics are."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from reknit.errors import LocalError
from reknit.spark.lake.commits import Commit
from reknit.spark.lake.lake import Lake
from reknit.spark.source.options import SourceOptions
from reknit.spark.source.query_nodes import QueryNodes
from reknit.transport.tls import TlsFiles

__all__ = ["NodesAway", "PipelineNodes", "is_up_to_date"]

PAUSE_S: Final = 0.1


class NodesAway(LocalError):
    """Nodes can't be reached, so a run that processes everything once would miss their events.

    >>> print(NodesAway({"tcp://n1:7440": "cannot reach tcp://n1:7440: connection refused"}))
    cannot reach tcp://n1:7440: connection refused; start it, or run with --allow-missing to process the others alone
    """

    def __init__(self, away: Mapping[str, str]) -> None:
        super().__init__(away)
        self.away = dict(away)

    def __str__(self) -> str:
        it = "it" if len(self.away) == 1 else "them"
        return f"{'; '.join(self.away.values())}; start {it}, or run with --allow-missing to process the others alone"


def is_up_to_date(lake: Lake, ends: Mapping[str, int], with_events: bool) -> bool:
    """True if a lake has everything that these journals (node@epoch) hold, and every stage has processed it.

    Then a run has nothing to do, and Spark need not start.
    """
    captures = [lake.log(stage).last() for stage in ("capture_batches", "capture_outcomes")]
    if any(last is None or not _reaches(last, ends) for last in captures):
        return False
    settled = lake.log("settle").last()
    if settled is None or captures[0] is None or settled.meta["through"] != captures[0].id:
        return False
    stages = ["dead_letters", *(["events"] if with_events else [])]
    lasts = [lake.log(stage).last() for stage in stages]
    is_processed = all(last is not None and last.meta["through"] == settled.id for last in lasts)
    return is_processed and not lake.files("held")


def _reaches(capture: Commit, ends: Mapping[str, int]) -> bool:
    offsets: dict[str, int] = capture.meta.get("offsets", {})
    return all(offsets.get(key) == end for key, end in ends.items())


class PipelineNodes:
    """Asks nodes about themselves, each until it has answered once."""

    def __init__(self, urls: Sequence[str], token: str, tls: TlsFiles, topics: Iterable[str] = ()) -> None:
        self.dead_letter_topics = set(topics)
        self.away: dict[str, str] = {}
        self.ends: dict[str, int] = {}
        """How far each journal (node@epoch) reached when its node answered."""
        options = SourceOptions(
            (), token=token, tls_ca_file=tls.ca, tls_cert_file=tls.cert, tls_key_file=tls.key
        )
        self._nodes = {url: QueryNodes(replace(options, nodes=(url,))) for url in urls}

    def ask(self) -> None:
        """Ask the nodes that have not answered yet. Raises `Refused` if one does not let the pipeline in."""
        self.away = {}
        for url, nodes in list(self._nodes.items()):
            for journal in nodes.poll().values():
                self.dead_letter_topics |= {journal.span.dead_letter_topic} - {""}
                self.ends[journal.key] = journal.span.end
                self._nodes.pop(url).close()
            self.away |= nodes.away

    def require(self, wait_s: float = 0.0) -> None:
        """As `ask`, and retry for `wait_s`. Raises `NodesAway` if a node does not answer."""
        deadline = time.monotonic() + wait_s
        self.ask()
        while self.away:
            if time.monotonic() > deadline:
                raise NodesAway(self.away)
            time.sleep(PAUSE_S)
            self.ask()

    def close(self) -> None:
        """Close the connections."""
        for nodes in self._nodes.values():
            nodes.close()
