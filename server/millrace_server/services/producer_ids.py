"""Producer ids: identities for idempotent producers, never given twice."""

from __future__ import annotations

from millrace_server.controller.metadata_log import MetadataLog
from millrace_server.metadata.controller import PRODUCER_ID_BLOCK, Controller
from millrace_server.metadata.image import ClusterImage

EPOCH_MAX = 2**15 - 1
EPOCHS_KEPT = 10_000
"""Of the ids that were given another epoch, those whose newest is known; about 1 MB."""


class ProducerIds:
    """Gives ids from a block that the metadata log reserves; a restart begins a new block.

    Knows the newest epochs it gave, in this life: what a producer sent with an older one, on a
    connection that it has given up, may arrive after all that it sends again with the new one was
    asked for, and must not be taken as well. No connection outlives the broker.
    """

    def __init__(self, metadata: MetadataLog, controller: Controller, image: ClusterImage) -> None:
        self._metadata = metadata
        self._controller = controller
        self._image = image
        self._next = 0
        self._end = 0
        self._epochs: dict[int, int] = {}

    def epoch_of(self, producer_id: int) -> int:
        """The newest epoch that was given to an id, -1 when that is not known."""
        return self._epochs.get(producer_id, -1)

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
            self._note(producer_id, epoch + 1)
            return producer_id, epoch + 1
        while self._next == self._end:
            await self._metadata.change(self._reserve)
        self._next += 1
        return self._next - 1, 0

    def _note(self, producer_id: int, epoch: int) -> None:
        known = self._epochs.pop(producer_id, -1)
        self._epochs[producer_id] = max(known, epoch)
        if len(self._epochs) > EPOCHS_KEPT:
            del self._epochs[next(iter(self._epochs))]

    async def _reserve(self) -> None:
        if self._next < self._end:
            return
        await self._metadata.write(self._controller.reserve_producer_ids())
        self._end = self._image.next_producer_id
        self._next = self._end - PRODUCER_ID_BLOCK
