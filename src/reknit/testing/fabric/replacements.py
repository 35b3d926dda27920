"""Nodes that come back with an older copy of their disk, or with an empty one, and what may be missing then.

What a node stored after the copy is gone with its disk, unless another node has it. The rest is promised as before:
no seq is used for two events, running publishers report what the node forgot, and linked nodes send again what the
copy lacks. See `docs/explanation/journal.md`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reknit.store.directory.backup import back_up, restore
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.record import Seen, Sent

NEVER: Final = float("-inf")


@dataclass(frozen=True, slots=True)
class Replacement:
    """A node's disk was replaced at some time by a copy from an earlier one."""

    node: str
    copied_at: float
    """-inf: the disk was empty."""
    at: float

    @property
    def is_empty(self) -> bool:
        return self.copied_at == NEVER

    def took(self, sent: Sent) -> bool:
        """Whether an event that was published at this node may be gone."""
        return sent.put_at <= self.at and sent.stored_at > self.copied_at


def copy_disk(node: FabricNode) -> Path:
    """Back up the disk of a node that is stopped, as `reknit backup` does."""
    copy = node.host.folder.with_name(f"{node.name}.copy")
    shutil.rmtree(copy, ignore_errors=True)
    back_up(node.host.folder, copy)
    return copy


async def start_replaced(node: FabricNode, copy: Path | None) -> None:
    """Start a node that crashed on a disk that was made of a copy, as `reknit restore` does, or on an empty one."""
    shutil.rmtree(node.host.folder)
    node.host.disk.is_full = node.host.disk.is_failing = False
    life = node.host.start()
    if copy is not None:
        life.call(restore, copy, node.host.folder)
    await node.start()


def may_be_gone(replaced: Iterable[Replacement], home: str, sent: Sent) -> bool:
    """Whether an event may be gone with a disk of the node where it was published."""
    return any(one.node == home and one.took(sent) for one in replaced)


def is_forgotten(replaced: Iterable[Replacement], seen: Seen) -> bool:
    """Whether a subscriber's node may have forgotten that it subscribed."""
    return any(one.node == seen.node and one.is_empty for one in replaced)
