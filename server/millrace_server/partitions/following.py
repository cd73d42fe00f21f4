"""What a follower does to its log: appends what the leader sent, gives up what the leader lacks.

A flush would keep on writing what is taken off, and retention would take off what is being written:
each change of the log's end waits for the flush in flight, and neither begins before it is done.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from millrace_server.disk.worker import shielded
from millrace_server.environment.seams import ReadBuffer
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.role import Role


def append_fetched(partition: Partition, batches: ReadBuffer, *, now_ms: int) -> int:
    """Appends what the leader sent, and requests a flush; returns the log's end.

    Raises what `PartitionLog.append_as_follower` raises.
    """
    try:
        end_offset = partition.log.append_as_follower(batches, now_ms=now_ms)
    except OSError as error:
        if partition.log.is_failed:
            partition.fail(error)
        raise
    partition.note_fetched(end_offset, len(batches))
    return end_offset


async def truncate_to(partition: Partition, offset: int, *, now_ms: int) -> int:
    """Takes off what the leader does not have, never below the high watermark.

    Returns the log's end. Raises what `PartitionLog.truncate_to` raises.
    """
    high_watermark = partition.high_watermark
    truncate = partial(
        partition.log.truncate_to, offset, high_watermark=high_watermark, now_ms=now_ms
    )
    return await _change_end(partition, truncate)


async def begin_at(partition: Partition, offset: int) -> int:
    """Gives up the whole log, and begins it at `offset`; returns it.

    Raises what `PartitionLog.begin_at` raises.
    """
    end_offset = await _change_end(partition, partial(partition.log.begin_at, offset))
    partition.advance_high_watermark(offset)
    return end_offset


async def begin_anew(partition: Partition, offset: int) -> None:
    """Gives up the whole log, and begins it at `offset`, without epochs, as a replica does whose
    log its leader cannot judge.

    The leader may go on with an older epoch than that of the records that went. The epochs are
    forgotten behind the records: a crash before may bring these back, and they need them. Raises
    what `PartitionLog.begin_at` raises.
    """
    await begin_at(partition, offset)
    if partition.log.forget_unused_epochs(is_anew=True):
        await partition.epochs_durable()


async def _change_end(partition: Partition, change: Callable[[], int]) -> int:
    if partition.leadership.role is Role.LEADER:
        raise ValueError(
            f"{partition.topic}-{partition.number} is led here and cannot be truncated"
        )
    async with partition.background:
        await partition.stop_flusher()
        try:
            end_offset = await shielded(partition.env.spawn.blocking(change))
        except OSError as error:
            if partition.log.is_failed:
                partition.fail(error)
            raise
        finally:
            partition.start_flusher()
        partition.committed.note_truncated(end_offset)
        return end_offset
