"""Producer ids: identities for idempotent producers, never given twice."""

from __future__ import annotations

from millrace_server.broker.metadata_log import MetadataLog
from millrace_server.metadata.controller import PRODUCER_ID_BLOCK, Controller
from millrace_server.metadata.image import ClusterImage

EPOCH_MAX = 2**15 - 1


class ProducerIds:
    """Gives ids from a block that the metadata log reserves; a restart begins a new block."""

    def __init__(self, metadata: MetadataLog, controller: Controller, image: ClusterImage) -> None:
        self._metadata = metadata
        self._controller = controller
        self._image = image
        self._next = 0
        self._end = 0

    def was_given(self, producer_id: int) -> bool:
        """Whether somebody may hold this id. Those of blocks cut short by a restart count."""
        return (
            0 <= producer_id < self._image.next_producer_id
            and not self._next <= producer_id < self._end
        )

    async def give(self, producer_id: int, epoch: int) -> tuple[int, int]:
        """An id and an epoch: the next epoch of the id given, or a new id when that is -1.

        An id that this cluster never gave, or whose epochs are used up, gets a new id.
        """
        if self.was_given(producer_id) and 0 <= epoch < EPOCH_MAX:
            return producer_id, epoch + 1
        while self._next == self._end:
            await self._metadata.change(self._reserve)
        self._next += 1
        return self._next - 1, 0

    async def _reserve(self) -> None:
        if self._next < self._end:
            return
        await self._metadata.write(self._controller.reserve_producer_ids())
        self._end = self._image.next_producer_id
        self._next = self._end - PRODUCER_ID_BLOCK
