"""Walking a log that may be damaged, and taking damage out of it.

Damage without a valid frame after it is a **torn tail**: a write was torn, or a file was cut short. It is cut off and
put aside, and the report says so. Damage with valid frames after it, in a part that was known to be on disk, is
**corruption**: nothing is changed, and the error says where it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from reknit.errors import JournalCorrupt
from reknit.frame import peek
from reknit.store.log.frames import Damaged, parse, valid_frame_after
from reknit.store.log.retention import Segment
from reknit.store.log.segment_files import SegmentFiles, segment_path, sync_directory
from reknit.store.log.tail import Chunk

SCAN_BYTES: Final = 4 << 20
_ZEROS: Final = bytes(1 << 16)


class TornTail(NamedTuple):
    """Nothing is valid from `position` on. Zeros are preallocated room, not damage."""

    position: int
    data: bytes
    why: str
    segments: Sequence[Segment]
    """The segment to cut, and those after it, which are removed."""

    @property
    def is_damage(self) -> bool:
        return bool(self.data)


def scan(files: SegmentFiles, segment: Segment, position: int, stop: int) -> Iterator[Chunk]:
    """The frames of a segment in `[position, stop)`, verified. Raises `Damaged`."""
    want = SCAN_BYTES
    while position < stop:
        view = memoryview(files.pread(segment.start, position - segment.start, min(want, stop - position)))
        try:
            chunks, used = parse(view, position, segment)
        except Damaged as damage:
            yield from damage.chunks
            raise
        yield from chunks
        position += used
        if used:
            continue
        length = peek(view, 0, len(view))[1]
        if length <= want or position + length > stop:
            raise Damaged(position, "a frame is cut off", [])
        want = length


def valid_chunks(files: SegmentFiles, segment: Segment, position: int, stop: int) -> Iterator[Chunk]:
    """The valid frames of a segment in `[position, stop)`; damaged ones between them are left out."""
    while position < stop:
        try:
            for chunk in scan(files, segment, position, stop):
                yield chunk
                position = chunk.end
        except Damaged as damage:
            position = continuation(files, segment, damage.position, stop)


def continuation(files: SegmentFiles, segment: Segment, position: int, stop: int) -> int:
    """Where the log continues after damage at `position`: `stop` is a known start of a frame, or the end.

    A payload may hold bytes that look like frames, so only frames that lead to `stop` count.
    """
    data = files.pread(segment.start, position - segment.start, stop - position)
    at = valid_frame_after(data, 8)
    while at is not None:
        try:
            for _ in scan(files, segment, position + at, stop):
                pass
            return position + at
        except Damaged as damage:
            at = valid_frame_after(data, damage.position - position + 8)
    return stop


def replay(
    files: SegmentFiles,
    segments: Sequence[Segment],
    position: int,
    synced: int,
    on_chunk: Callable[[Chunk], None],
) -> TornTail | None:
    """Pass every chunk from `position` on to `on_chunk`. Returns a torn tail to cut off; raises for other damage."""
    for index, segment in enumerate(segments):
        file_end = segment.start + files.size(segment.start)
        following = segments[index + 1].start if index + 1 < len(segments) else None
        stop = file_end if following is None else min(file_end, following)
        if following is not None and following <= position:
            continue
        try:
            reached = max(position, segment.start)
            for chunk in scan(files, segment, reached, stop):
                on_chunk(chunk)
                reached = chunk.end
            if following is not None and reached < following and reached != segment.end:
                raise Damaged(reached, "the file is cut off", [])
        except Damaged as damage:
            return _judged(files, segments[index:], damage, synced)
    return None


def _judged(files: SegmentFiles, segments: Sequence[Segment], damage: Damaged, synced: int) -> TornTail:
    segment, position = segments[0], damage.position
    rest = files.pread(segment.start, position - segment.start, files.size(segment.start))
    data = rest[: content_bytes(rest)]
    follows_in_file = bool(data) and valid_frame_after(rest, 8) is not None
    # A file is synced before the next one is written, so a later file with content proves this one was whole.
    if any(holds_frames(files, later) for later in segments[1:]) or (follows_in_file and position < synced):
        raise corrupt(files.directory, segment, position, damage.why)
    return TornTail(position, data, damage.why, segments)


def content_bytes(data: bytes) -> int:
    """The length of data without the zeros at its end. Megabytes of them are preallocated, and skipped in blocks."""
    stop = len(data)
    while stop >= len(_ZEROS) and data[stop - len(_ZEROS) : stop] == _ZEROS:
        stop -= len(_ZEROS)
    return len(data[:stop].rstrip(b"\0"))


def holds_frames(files: SegmentFiles, segment: Segment) -> bool:
    """True if there is any valid frame in a segment's file."""
    return valid_frame_after(files.pread(segment.start, 0, files.size(segment.start)), 0) is not None


def corrupt(directory: Path, segment: Segment, position: int, why: str) -> JournalCorrupt:
    """The error for damage that is not a torn tail."""
    error = JournalCorrupt(str(segment_path(directory, segment.start)), position - segment.start, why)
    error.do = (
        f"restore the file, or set the damaged part aside with `reknit journal repair {directory.parent}`"
    )
    return error


def cut(files: SegmentFiles, tail: TornTail, aside: Path) -> str:
    """Cut a torn tail off the log; returns the file with its bytes, if it had any."""
    segment = tail.segments[0]
    path = ""
    if tail.is_damage:
        path = str(set_aside(aside, tail.position, tail.data))
    os.truncate(segment_path(files.directory, segment.start), tail.position - segment.start)
    for later in tail.segments[1:]:
        segment_path(files.directory, later.start).unlink()
        files.forget(later.start)
    sync_directory(files.directory)
    return path


def set_aside(aside: Path, position: int, data: bytes) -> Path:
    """Put damaged bytes into a file of their own, named by their position."""
    number, path = 1, aside / f"{position:020}.torn"
    while path.exists():
        number += 1
        path = aside / f"{position:020}.{number}.torn"
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    sync_directory(aside)
    return path
