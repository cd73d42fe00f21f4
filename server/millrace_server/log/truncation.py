"""Taking the tail off a log, as a follower does whose tail is not the leader's.

Owns the order of the steps on the disk, and what is left of segment and producers. Refuses to
decide how far a log is truncated: the leader's epoch table says it.

    copy the front of the segment, sync      4096.cleaned: a crash leaves a scrap
    recovery point, synced                   nothing behind the cut counts as durable any more
    index entries, checkpoint                the log ends at the cut; recovery keeps what follows it
    remove later segments, last first
    rename the copy to 4096.log, sync        no reader sees its file shrink: it holds the old inode
    epoch table

A crash leaves the log as it was, as it is afterwards, or with a part of the tail: the follower
truncates again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from millrace_protocol.records import BatchHeader
from millrace_server.environment.seams import Disk
from millrace_server.log.checkpoint import Checkpoint, write_checkpoint
from millrace_server.log.durable_mark import DurableMark, MarkFile, keep_mark
from millrace_server.log.flush import IndexTail
from millrace_server.log.integrity.scan import BatchScan
from millrace_server.log.integrity.verification import Boundary
from millrace_server.log.producers import BATCHES_KEPT, Producers
from millrace_server.log.segment import CLEANED_SUFFIX, LOG_SUFFIX, Segment

_COPY_BYTES: Final = 1024 * 1024


def end_before(segment: Segment, offset: int) -> Boundary:
    """Returns where the batches of a segment end that lie before `offset`. Blocking.

    In a gap that is the end of the batch before it. Raises `CorruptLog` and `OSError`.
    """
    cut = segment.boundary_of(offset)
    if segment.is_dense:
        return cut
    end_offset = segment.base_offset
    for span in segment.spans(0, cut.position):
        end_offset = span.last_offset + 1
    return Boundary(cut.position, end_offset)


def copy_front(disk: Disk, directory: str, segment: Segment, cut: Boundary) -> Segment:
    """Copies what a segment holds before `cut` to a file of its own, durably. Blocking.

    Returns the segment that will take its place, with its indexes. Raises `CorruptLog`, `OSError`.
    """
    front = Segment(
        disk,
        directory,
        segment.base_offset,
        index_interval_bytes=segment.index_interval_bytes,
        end_offset=cut.offset,
        size_bytes=cut.position,
    )
    front.is_dense = segment.is_dense
    try:
        front.rebuild_indexes()
        _copy(disk, front, cut.position)
    finally:
        front.close_files()
    front.trust_nothing()
    return front


def _copy(disk: Disk, front: Segment, size_bytes: int) -> None:
    path = front.path(CLEANED_SUFFIX)
    if disk.exists(path):
        disk.remove(path)
    copy = disk.open(path, create=True, write=True)
    try:
        for position in range(0, size_bytes, _COPY_BYTES):
            piece_bytes = min(_COPY_BYTES, size_bytes - position)
            copy.pwrite(front.pread(piece_bytes, position), position)
        copy.sync()
    finally:
        copy.release()


def note_end(
    disk: Disk, directory: str, front: Segment, checkpoint: Checkpoint, mark_file: MarkFile
) -> None:
    """Writes down, durably, that the log ends with `front`, as `checkpoint` says. Blocking.

    Recovery keeps what lies behind. So an `OSError` leaves the log as it was.
    """
    mark_file.write(DurableMark(front.end_offset, front.base_offset, front.size_bytes))
    keep_mark(disk, directory)
    tail = IndexTail.of(front)
    if tail is not None:
        tail.write(disk)
        tail.note_saved()
    write_checkpoint(disk, directory, checkpoint)


def replace_tail(disk: Disk, directory: str, front: Segment, later: Sequence[Segment]) -> None:
    """Puts `front` in the place of its segment and removes the `later` ones, durably. Blocking.

    An `OSError` leaves a part of it done: the log has to fail then.
    """
    for segment in reversed(later):
        segment.remove_files()
    disk.rename(front.path(CLEANED_SUFFIX), front.path(LOG_SUFFIX))
    disk.sync_directory(directory)


def producers_before(
    producers: Producers, segments: Sequence[Segment], cut: Boundary, *, now_ms: int
) -> Producers:
    """The producers of a log that ends at `cut`, which lies in the last of `segments`. Blocking.

    The latest batches of a producer that wrote behind the cut are looked for from there on
    backwards, so that the segments near the end are read, and all of them only for a producer that
    wrote little before. Raises `OSError`.
    """
    kept, wanted = producers.truncated_to(cut.offset)
    found: dict[int, list[BatchHeader]] = {}
    for segment in reversed(segments):
        if not wanted:
            break
        is_cut = segment is segments[-1]
        earlier: dict[int, list[BatchHeader]] = {}
        for header in BatchScan(
            segment.file,
            0,
            cut.position if is_cut else segment.size_bytes,
            next_offset=segment.base_offset,
            is_dense=segment.is_dense,
        ):
            if header.producer_id in wanted:
                earlier.setdefault(header.producer_id, []).append(header)
        for producer_id, headers in earlier.items():
            headers += found.get(producer_id, [])
            found[producer_id] = headers[-BATCHES_KEPT:]
            if len(headers) >= BATCHES_KEPT or headers[0].base_sequence == 0:
                wanted.remove(producer_id)
    for headers in found.values():
        for header in headers:
            kept.note(
                header,
                base_offset=header.base_offset,
                log_append_time_ms=header.max_timestamp if header.is_log_append_time else -1,
                now_ms=now_ms,
            )
    return kept
