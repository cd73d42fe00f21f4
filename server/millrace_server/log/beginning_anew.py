"""Giving up a whole log and beginning it at another offset, before or behind where it was.

A follower does it whose log its leader cannot judge, and the metadata log behind a snapshot. Owns
the order of the steps on the disk. Refuses to decide where a log begins.

    log before, one or more segments    0.log ... 4096.log
    empty segment behind its end        0.log ... 4096.log  5001.log     a start removes the last
    checkpoint                          the log is 5001.log              a start removes the others
    remove the others

A log that is to begin before its end begins behind it first. Then it is one empty segment, and goes
back by the same steps. So no name is in use twice, and a crash leaves the log as it was, as it is
afterwards, or empty behind its end.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from millrace_server.log.checkpoint import Checkpoint, write_checkpoint
from millrace_server.log.durability import Durability, is_disk_full
from millrace_server.log.producers import Producers
from millrace_server.log.recovery_point import RecoveryPoint, sync_recovery_point
from millrace_server.log.segment import LOG_SUFFIX, Segment
from millrace_server.log.state import LogState
from millrace_server.log.truncation import check_settled

_NO_PRODUCERS: Final = Producers()


def begin_at(state: LogState, durability: Durability, offset: int) -> None:
    """Replaces all segments by an empty one that begins at `offset`. Blocking.

    All of the log is durable, and its checkpoint says so. Raises `OSError`: a full disk leaves the
    log as it was, or empty behind its end; after any other error it has failed.
    """
    if offset == state.start_offset == state.end_offset:
        return
    if offset <= state.end_offset:
        _replace_all(state, durability, state.end_offset + 1)
    _replace_all(state, durability, offset)


def _replace_all(state: LogState, durability: Durability, offset: int) -> None:
    disk, directory, chain = state.disk, state.directory, state.chain
    try:
        check_settled(state)
        fresh = Segment.create(
            disk, directory, offset, index_interval_bytes=state.config.index_interval_bytes
        )
    except OSError as error:
        _fail_unless_full(state, error)
        raise
    try:
        disk.sync_directory(directory)
        if offset < state.end_offset:
            durability.recovery_point.write(RecoveryPoint(offset, offset, 0))
            sync_recovery_point(disk, directory)
        write_checkpoint(
            disk,
            directory,
            Checkpoint(offset, offset, offset, 0, -1, 0, (), _NO_PRODUCERS.encode()),
        )
    except OSError as error:
        fresh.close_files()
        with suppress(OSError):
            disk.remove(fresh.path(LOG_SUFFIX))
        _fail_unless_full(state, error)
        raise
    try:
        for segment in chain.replace_all(fresh):
            segment.remove_files()
    except OSError as error:
        state.fail(error)
        raise
    state.begin_anew(offset)
    durability.note_begun_anew(offset)


def _fail_unless_full(state: LogState, error: OSError) -> None:
    if not is_disk_full(error):
        state.fail(error)
