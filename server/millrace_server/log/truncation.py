"""Taking the tail off a log, as a follower does whose tail is not the leader's.

Owns the order of the steps on the disk, and what is left of segment and producers. Refuses to
decide how far a log is truncated: the leader's epoch table says it.

    copy the front of the segment, sync      4096.cleaned: the next start removes it
    recovery point, synced                   nothing behind the cut counts as durable any more
    index entries, checkpoint                the log ends at the cut; recovery keeps what follows it
    remove later segments, last first
    rename the copy to 4096.log, sync        no reader sees its file shrink: it holds the old inode
    epoch table

A crash leaves the log as it was, as it is afterwards, or with a part of the tail: the follower
truncates again.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from millrace_protocol.records import BatchHeader
from millrace_server.environment.seams import Disk
from millrace_server.log.checkpoint import Checkpoint, write_checkpoint
from millrace_server.log.durability import Durability, is_disk_full
from millrace_server.log.epochs import FIRST_EPOCH
from millrace_server.log.errors import OffsetOutOfRange
from millrace_server.log.flush import IndexTail
from millrace_server.log.integrity.scan import BatchScan
from millrace_server.log.integrity.verification import Boundary
from millrace_server.log.producers import BATCHES_KEPT, Producers
from millrace_server.log.recovery_point import (
    RecoveryPoint,
    RecoveryPointFile,
    sync_recovery_point,
)
from millrace_server.log.segment import CLEANED_SUFFIX, LOG_SUFFIX, Segment
from millrace_server.log.state import LogState

_COPY_BYTES: Final = 1024 * 1024


def truncate(state: LogState, durability: Durability, offset: int, *, now_ms: int) -> None:
    """Takes off the batches from the one that holds `offset` on. Blocking.

    Everything is durable, and the checkpoint says so. Raises `OffsetOutOfRange`, `CorruptLog` and
    `OSError`: a full disk leaves the log as it was, after any other error it has failed.
    """
    try:
        cut, front, later, producers = _prepare(state, durability, offset, now_ms=now_ms)
    except OSError as error:
        if not is_disk_full(error):
            state.fail(error)
        raise
    try:
        replace_tail(state.disk, state.directory, front, later)
        front.open_for_writing()
    except OSError as error:
        state.fail(error)
        raise
    state.chain.truncate(front)
    state.producers = producers
    state.end_offset = cut.offset
    epochs = state.epochs.truncate_to(cut.offset)
    state.epochs = epochs if epochs.entries else FIRST_EPOCH
    durability.note_truncated(cut)


def _prepare(
    state: LogState, durability: Durability, offset: int, *, now_ms: int
) -> tuple[Boundary, Segment, list[Segment], Producers]:
    """Changes nothing of the log that a crash or an error would show."""
    check_settled(state)
    chain = state.chain
    segment = chain.holding(offset)
    if segment.generation:
        # Compaction cleans below the high watermark alone.
        raise OffsetOutOfRange(offset, segment.end_offset, state.end_offset)
    cut = end_before(segment, offset)
    count = chain.segments.index(segment)
    producers = producers_before(state.producers, chain.segments[: count + 1], cut, now_ms=now_ms)
    front = copy_front(state.disk, state.directory, segment, cut)
    before = durability.checkpoint(is_clean=False)
    checkpoint = replace(
        before,
        end_offset=cut.offset,
        active_base_offset=front.base_offset,
        position=cut.position,
        max_timestamp=front.max_timestamp,
        index_entries=len(front.offsets),
        closed=before.closed[:count],
        producers=producers.encode(),
    )
    note_end(state.disk, state.directory, front, checkpoint, durability.recovery_point)
    return cut, front, chain.segments[count + 1 :], producers


def check_settled(state: LogState) -> None:
    """Raises `OSError` unless the checkpoint names every closed segment."""
    if state.chain.unsettled:
        raise OSError(errno.ENOSPC, "no room for the checkpoint", state.directory)


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
    disk: Disk, directory: str, front: Segment, checkpoint: Checkpoint, file: RecoveryPointFile
) -> None:
    """Writes down, durably, that the log ends with `front`, as `checkpoint` says. Blocking.

    Recovery keeps what lies behind. So an `OSError` leaves the log as it was.
    """
    file.write(RecoveryPoint(front.end_offset, front.base_offset, front.size_bytes))
    sync_recovery_point(disk, directory)
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
