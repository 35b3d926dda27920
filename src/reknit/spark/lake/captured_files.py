"""Which files of table `batches` hold the batches of settled ranges.

A run of settle reads what was captured since the last run, and ranges that were held back: those came with earlier
commits, each on one topic. So a gap that stays open costs its own topic a look back, and no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from reknit.spark.lake.commits import FOLDED, Commit, LakeFile, added_by
from reknit.spark.lake.lake import Lake
from reknit.spark.lake.tables import topic_key

__all__ = [
    "ANY_COMMIT",
    "EVERY_TOPIC",
    "EarlierBatches",
    "captured_files",
    "earlier_batches",
    "files_for",
    "is_named",
]

EarlierBatches = Mapping[str, list[str]]
"""For a commit of capture, the keys of the topics whose batches are needed. JSON has text for keys."""

ANY_COMMIT: Final = -1
"""Stands for the commit of ranges that were held back before their commits were recorded."""
EVERY_TOPIC: Final = "*"
TOPICS_MAX: Final = 200
"""A commit of which more topics are needed is read as a whole."""


def earlier_batches(rows: Iterable[tuple[int | None, str]]) -> dict[str, list[str]]:
    """From the commits and topics of ranges.

    >>> earlier_batches([(3, "plant/a"), (None, "plant/b")])
    {'-1': ['plant_b-c938b16866bb'], '3': ['plant_a-976e0912e60d']}
    """
    found: dict[int, set[str]] = {}
    for commit, topic in rows:
        found.setdefault(ANY_COMMIT if commit is None else commit, set()).add(topic_key(topic))
    return {
        str(commit): sorted(keys) if len(keys) <= TOPICS_MAX else [EVERY_TOPIC]
        for commit, keys in sorted(found.items())
    }


def captured_files(lake: Lake, after: int, through: int, earlier: EarlierBatches) -> list[LakeFile]:
    """The files of the commits `(after, through]`, and of the earlier ones those that are named."""
    files = [file for file in lake.files("batches") if added_by(file) <= through]
    return [file for file in files if added_by(file) > after or is_named(file, earlier)]


def is_named(file: LakeFile, earlier: EarlierBatches) -> bool:
    """Whether these batches may be in a file. One that compaction made may hold batches of any commit."""
    commits = list(earlier) if file.commit == FOLDED else [str(added_by(file)), str(ANY_COMMIT)]
    keys = [key for commit in commits for key in earlier.get(commit, ())]
    return bool(keys) and (file.may_hold(keys) or EVERY_TOPIC in keys)


def files_for(lake: Lake, settles: Iterable[Commit]) -> list[LakeFile]:
    """The files with the batches of everything that these commits settled."""
    commits = list(settles)
    metas: list[dict[str, Any]] = [commit.meta for commit in commits]
    earlier: dict[str, list[str]] = {}
    for meta in metas:
        for commit, keys in meta.get("earlier", {}).items():
            earlier.setdefault(commit, []).extend(keys)
    after = min(int(meta["since"]) for meta in metas)
    return captured_files(lake, after, max(int(meta["through"]) for meta in metas), earlier)
