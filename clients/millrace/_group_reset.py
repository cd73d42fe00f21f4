"""The moves of a reset, planned from the offsets that a group and its partitions have now.

Owns the requests. `_group.offset_reset` plans, and the caller commits the moves.
"""

from __future__ import annotations

from collections.abc import Collection

from millrace._group.offset_reset import Move, PartitionOffsets, Target, plan
from millrace.admin import Admin
from millrace.records import TopicPartition


async def planned_moves(
    admin: Admin, group: str, partitions: Collection[TopicPartition], target: Target
) -> list[Move]:
    """A move for each of the partitions, in order; changes nothing. Raises `NoSuchOffset`."""
    committed = await admin.list_group_offsets(group, partitions)
    starts = await admin.list_offsets(dict.fromkeys(partitions, "earliest"))
    ends = await admin.list_offsets(dict.fromkeys(partitions, "latest"))
    at_time: dict[TopicPartition, int] = {}
    if target.time_ms is not None:
        found = await admin.list_offsets(dict.fromkeys(partitions, target.time_ms))
        at_time = {where: answer.offset for where, answer in found.items() if answer.offset >= 0}
    known = {
        where: PartitionOffsets(
            committed[where].offset if where in committed else None,
            starts[where].offset,
            ends[where].offset,
            at_time.get(where),
        )
        for where in partitions
    }
    return plan(target, known)
