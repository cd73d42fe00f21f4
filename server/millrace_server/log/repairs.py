"""What recovery changes on the disk, put off until the whole log has been judged.

Owns the changes and their order. Refuses to know why: `recovery` does. A log that is refused
half way through its segments must be found as it was when it is repaired.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from millrace_server.environment.seams import Disk, File
from millrace_server.log.checkpoint import Checkpoint, write_checkpoint
from millrace_server.log.segment import LOG_SUFFIX, Segment

STRAY_SUFFIX: Final = ".stray"
_REWRITE_BYTES: Final = 1024 * 1024


class Repairs:
    """Changes noted in the order in which `carry_out` makes them, once."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._steps: list[Callable[[], None]] = []

    def remove(self, path: str) -> None:
        """A file goes."""
        self._steps.append(lambda: self._disk.remove(path))

    def rewrite_checkpoint(self, directory: str, checkpoint: Checkpoint) -> None:
        """The checkpoint that was found is made durable, before what it does not name goes.

        If the process before this one ended because a sync of the directory failed, the disk may
        still have the checkpoint before it, which names these segments.
        """
        self._steps.append(lambda: write_checkpoint(self._disk, directory, checkpoint))

    def remove_segment(self, segment: Segment) -> None:
        """All files of a segment go."""
        self._steps.append(segment.remove_files)

    def set_aside(self, segment: Segment) -> str:
        """The records of a segment get another name, which the return value is; its indexes go."""
        path = segment.path(LOG_SUFFIX)
        target = path + STRAY_SUFFIX
        while self._disk.exists(target):
            target += STRAY_SUFFIX

        def rename() -> None:
            self._disk.rename(path, target)
            segment.remove_files()

        self._steps.append(rename)
        return target

    def save_indexes(self, segment: Segment) -> None:
        """The indexes of a closed segment, built again, become files; it need not be open."""

        def save() -> None:
            segment.save_indexes()
            segment.are_indexes_saved = True
            segment.close_files()

        self._steps.append(save)

    def rewrite(self, segment: Segment, position: int) -> None:
        """What the segment holds from `position` on is written once more."""
        end_position = segment.size_bytes
        if position < end_position:
            self._steps.append(lambda: _rewrite(segment.file, position, end_position))

    def truncate(self, segment: Segment, *, is_cut: bool) -> int:
        """What lies behind the segment's end goes; returns how much that is.

        `is_cut`: it may hold whole batches, so its end is made durable. If the old end came back
        after a power cut, a batch appended by then could be followed by one that was cut.
        """
        surplus_bytes = segment.file.size() - segment.size_bytes
        size_bytes = segment.size_bytes

        def truncate() -> None:
            segment.file.truncate(size_bytes)
            if is_cut:
                segment.file.sync()

        self._steps.append(truncate)
        return surplus_bytes

    def carry_out(self) -> None:
        """Makes the changes. Blocking; raises `OSError`."""
        for step in self._steps:
            step()
        self._steps.clear()


def _rewrite(file: File, position: int, end_position: int) -> None:
    """Writes what was read once more, for the sync that makes it durable.

    The scan reads the kernel's cache. If the process before this one ended because a sync failed,
    what it did not write is still there, marked clean: the next sync would succeed without
    writing it, and a power cut would take it from below the checkpoint.
    """
    while position < end_position:
        data = file.pread(min(_REWRITE_BYTES, end_position - position), position)
        file.pwrite(data, position)
        position += len(data)
