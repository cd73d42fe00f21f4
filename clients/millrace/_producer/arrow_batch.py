"""A producer's batch whose records lie in Arrow columns until it is encoded.

It is sealed from the start: nothing is appended to it, and nothing lingers in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace._producer.batch import Batch, Number, Owner
from millrace_protocol.records import Codec

if TYPE_CHECKING:
    from millrace._producer.arrow_columns import ArrowColumns


class ArrowBatch(Batch):
    """All records of some `ArrowColumns`, which are dropped when it is encoded or settled."""

    __slots__ = ("_columns",)

    def __init__(
        self, owner: Owner, topic: str, partition: int, number: Number, columns: ArrowColumns
    ) -> None:
        super().__init__(owner, topic, partition, number, -1)
        self._columns: ArrowColumns | None = columns
        self.count = len(columns)
        self.size_bytes = columns.size_bytes
        self.clock_ms = columns.timestamp_ms

    def encode(self, codec: Codec, producer_id: int, epoch: int, sequence: int) -> None:
        """Makes `payload` of the columns, which are dropped."""
        columns, self._columns = self._columns, None
        assert columns is not None
        self.sequence = sequence
        self.payload = columns.encode(
            codec,
            producer_id=producer_id,
            producer_epoch=epoch if producer_id >= 0 else -1,
            base_sequence=sequence,
        )

    def _settle(self) -> None:
        super()._settle()
        self._columns = None
