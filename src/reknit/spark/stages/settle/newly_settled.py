"""The ranges that a stage after settle has not processed yet."""

from __future__ import annotations

from typing import NamedTuple

from reknit.spark.lake.captured_files import files_for
from reknit.spark.lake.commits import LakeFile
from reknit.spark.lake.lake import Lake

__all__ = ["SettledRanges", "newly_settled"]


class SettledRanges(NamedTuple):
    """Settled ranges that a stage has not processed yet."""

    id: int
    """The id of the commit that the stage makes of them."""
    through: int
    """The last commit of settle that they come from."""
    pieces: list[LakeFile]
    """The files of table `settled` with the ranges."""
    batches: list[LakeFile]
    """The files of table `batches` with their frames."""


def newly_settled(lake: Lake, stage: str) -> SettledRanges | None:
    """The ranges settled since the stage's last commit; None if there are no new ones."""
    last = lake.log(stage).last()
    seen = -1 if last is None else int(last.meta["through"])
    commits = [commit for commit in lake.log("settle").commits() if commit.id > seen]
    if not commits:
        return None
    if last is None:
        # The stage is new in a lake whose commits may be folded and compacted, so it reads whole tables.
        return SettledRanges(0, commits[-1].id, lake.files("settled"), lake.files("batches"))
    pieces = lake.files("settled", seen, commits[-1].id)
    return SettledRanges(last.id + 1, commits[-1].id, pieces, files_for(lake, commits))
