"""The watch over commits: what is staged and not committed is reported, in time."""

from __future__ import annotations

import pytest

from reknit.records import SubscriberOwned
from reknit.testing.fabric.checks.commits import COMMIT_S_MAX, RETRY_S_MAX, CommitWatch, has_staged
from reknit.testing.fabric.fabric import Fabric


@pytest.mark.parametrize(("has_bad_disks", "limit_s"), [(False, COMMIT_S_MAX), (True, RETRY_S_MAX)])
def test_what_nobody_commits_is_reported(has_bad_disks: bool, limit_s: float) -> None:
    async def stage() -> list[list[str]]:
        node = await fabric.start_node("n0")
        watch = CommitWatch(fabric.nodes, has_bad_disks)
        before = list(watch.look(0.0))
        node.node.journal.stage_record(SubscriberOwned("d0", "ann", 1))
        return [
            before,
            list(watch.look(1.0)),
            list(watch.look(1.0 + limit_s)),
            list(watch.look(1.1 + limit_s)),
        ]

    with Fabric(seed=1) as fabric:
        *earlier, last = fabric.run(stage())
    assert earlier == [[], [], []]
    assert "n0 has staged entries" in last[0]


def test_what_only_the_index_committed_counts_as_staged() -> None:
    async def stage() -> tuple[bool, bool]:
        node = await fabric.start_node("n0")
        node.node.journal.stage_record(SubscriberOwned("d0", "ann", 1))
        node.node.journal.commit()
        told = has_staged(node)
        node.node.core.durable(0, node.node.journal.end, fabric.loop.now)
        return told, has_staged(node)

    with Fabric(seed=1) as fabric:
        assert fabric.run(stage()) == (True, False)
