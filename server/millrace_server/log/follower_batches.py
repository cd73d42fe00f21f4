"""What a follower takes from its leader: whole batches that follow what its log has.

Owns the checks before a byte is written. Refuses to know how the batches came. The leader has
checked what a client may send; a follower checks what would damage its log (KIP-101). Offsets may
be missing between batches: the leader may have compacted its log.
"""

from __future__ import annotations

from millrace_protocol.records import BatchHeader, check_batch
from millrace_server.environment.seams import ReadBuffer
from millrace_server.log.errors import UnexpectedBatch
from millrace_server.log.segment import RELATIVE_OFFSET_MAX


def check_for_follower(
    batches: ReadBuffer, *, next_offset: int, leader_epoch: int
) -> list[tuple[memoryview, BatchHeader]]:
    """Returns the batches with their headers, in order.

    The first begins at `next_offset` or behind it, and each behind the one before. The epochs do
    not fall, and none is below `leader_epoch`. Raises `CorruptBatch` and `UnexpectedBatch`.
    """
    view = memoryview(batches)
    checked: list[tuple[memoryview, BatchHeader]] = []
    position = 0
    while position < len(view):
        header = check_batch(view, position)
        if header.base_offset < next_offset:
            raise UnexpectedBatch(
                f"offset {next_offset} is next, and the leader's batch begins at "
                f"{header.base_offset}"
            )
        if header.last_offset - next_offset > RELATIVE_OFFSET_MAX:
            # Compaction keeps the last batch of what it reads at once, so no leader has such a gap.
            raise UnexpectedBatch(
                f"offset {next_offset} is next, and the leader's batch ends at "
                f"{header.last_offset}: no segment spans both"
            )
        if header.partition_leader_epoch < leader_epoch:
            raise UnexpectedBatch(
                f"the log has reached leader epoch {leader_epoch}, and the leader's batch at "
                f"offset {header.base_offset} is of epoch {header.partition_leader_epoch}"
            )
        end_position = position + header.size_bytes
        checked.append((view[position:end_position], header))
        position, next_offset = end_position, header.next_offset
        leader_epoch = header.partition_leader_epoch
    return checked
