"""Records of a topic whose partitions are not known yet, in order, and the partitions they name.

They lie in a batch that is never sent: they move to the batches of partitions, or fail.
"""

from __future__ import annotations

from collections.abc import Sequence

from millrace._producer.batch import Batch

UNASSIGNED = -1
"""The partition number of a batch whose records have none yet."""
_WAKEUP_BYTES = 128 * 1024
"""The sender wakes up after so many bytes each. A caller of `send` and `room` then gives the event
loop turns, in which the answer about the topic arrives; a whole batch would be too long to wait."""


class UnassignedRecords:
    """The records of one topic; `partitions` has an entry for each, None for any partition."""

    __slots__ = ("batch", "partitions")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.partitions: list[int | None] = []

    def expect(self, partitions: Sequence[int | None], size: int) -> bool:
        """Notes the next records, of `size` bytes together, which the caller adds to the batch.

        Returns whether the sender has to wake up.
        """
        self.partitions += partitions
        batch = self.batch
        if batch.size_bytes + size <= batch.limit_bytes:
            return False
        batch.limit_bytes = batch.size_bytes + size + _WAKEUP_BYTES
        return True

    def since_ms(self, now_ms: int) -> int:
        """Since when the first record waits; counts from the first call."""
        if self.batch.opened_ms is None:
            self.batch.opened_ms = now_ms
        return self.batch.opened_ms
