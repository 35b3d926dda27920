"""The files that an open journal holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from reknit.store.directory.index_check import open_index
from reknit.store.directory.layout import DirectoryLock, Layout, SharedEnd
from reknit.store.log.segment_files import SegmentFiles, explained


class JournalFiles:
    """The directory's lock, the shared end, the segment files and the index of a journal that is open for writing."""

    def __init__(self, layout: Layout, index_map_bytes: int) -> None:
        self.layout = layout
        try:
            layout.root.mkdir(parents=True, exist_ok=True)
            layout.root.chmod(0o700)  # events are nobody else's business
            self.lock = DirectoryLock(layout.lock)
        except OSError as error:
            raise explained(error, layout.root) from error
        try:
            label = layout.create()
            self.id, self.origin = label.id, label.origin or label.id
            self.shared = SharedEnd(layout.end, writable=True)
            self.segments = SegmentFiles(layout.log)
            self.index, self.index_damage = open_index(layout, index_map_bytes)
        except OSError as error:
            self.lock.release()
            raise explained(error, layout.root) from error
        except BaseException:
            self.lock.release()
            raise

    def close(self) -> None:
        self.segments.close()
        self.index.close()
        self.shared.close()
        self.lock.release()


@contextmanager
def closing_on_error(files: JournalFiles) -> Iterator[None]:
    """While a journal is opened: an error closes its files, and the system's errors become the journal's."""
    try:
        yield
    except OSError as error:
        files.close()
        raise explained(error, files.layout.root) from error
    except BaseException:
        files.close()
        raise
