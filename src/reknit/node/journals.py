"""Opens the journal that the configuration names."""

from __future__ import annotations

import os

from reknit import environment
from reknit.config import Config
from reknit.store.disk import DiskJournal
from reknit.store.journal import Journal
from reknit.store.log.retention import Retention
from reknit.store.memory import MemoryJournal


def open_journal(config: Config) -> tuple[Journal, str]:
    """The journal and its epoch: a name that changes when positions start anew. Raises `JournalError`."""
    settings, limits = config.retention, config.limits
    retention = Retention(settings.count_max or None, settings.bytes_max or None, settings.age_s_max or None)
    staged_bytes_max = 2 * limits.intake_bytes_max
    if config.journal.kind == "memory":
        return MemoryJournal(retention, staged_bytes_max=staged_bytes_max), environment.token_hex(8)
    directory = config.node.data_dir
    journal = DiskJournal(
        directory,
        retention,
        staged_bytes_max=staged_bytes_max,
        segment_bytes=config.journal.segment_bytes,
        tail_cache_bytes=config.journal.tail_cache_bytes,
    )
    return journal, _epoch(directory)


def _epoch(directory: os.PathLike[str]) -> str:
    path = os.path.join(directory, "epoch")
    try:
        with open(path) as file:
            return file.read().strip()
    except FileNotFoundError:
        epoch = environment.token_hex(8)
        with open(path, "x") as file:
            file.write(epoch + "\n")
            file.flush()
            os.fsync(file.fileno())
        return epoch
