"""One call that brings many records: what of them is in batches, and what still has to wait.

Knows no event loop and no time; `accumulator` takes from it as there is room.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from millrace._producer.batch import Owner
from millrace._producer.columns import Columns
from millrace._producer.receipts import Deliveries, Run
from millrace._wording import counted
from millrace.errors import BufferFull

if TYPE_CHECKING:
    from millrace._producer.arrow_columns import ArrowColumns


class PendingRecords:
    """One `send_many` or `send_arrow`: its records.

    Those from `taken` on are in no batch yet.
    """

    __slots__ = ("columns", "deliveries", "partition", "taken", "topic")

    def __init__(
        self, owner: Owner, topic: str, partition: int | None, columns: Columns | ArrowColumns
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.columns = columns
        self.taken = 0
        self.deliveries = Deliveries(owner, len(columns.values))

    def took(self, runs: list[Run], rows: Sequence[int] | None = None) -> None:
        """The next records are where `runs` say, in the order of `rows`."""
        self.taken += sum(count for _, _, count in runs)
        self.deliveries.took(runs, rows)

    def keep_rest(self) -> None:
        """Copies what is not taken: the caller may change the columns from now on."""
        self.columns = self.columns.part(self.taken, len(self.columns.values))
        self.taken = 0

    @property
    def is_done(self) -> bool:
        """Whether every record is in a batch."""
        return self.taken == len(self.columns.values)


def buffer_full(pending: PendingRecords | None, size: int, taken: int, limit: int) -> BufferFull:
    """The error where records of `pending` wait already, or `size` bytes more do not fit."""
    if pending is not None:
        count = len(pending.columns.values) - pending.taken
        return BufferFull(
            f"an earlier send_many waits for room in buffer_bytes={limit} with "
            f"{counted(count, 'record')}: await producer.room() first"
        )
    return BufferFull(
        f"{taken} of buffer_bytes={limit} wait to be acked, and the record needs {size}: "
        "await producer.room() before each send"
    )
