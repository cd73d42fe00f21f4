"""Producer ids: identities for idempotent producers, never given twice.

The metadata log says which ids may have been given. A broker reserves a block of them and gives
those. So in a cluster a broker can meet an id whose block its image does not have yet.

Partitions know ids as well. Where the metadata log alone was restored from an older copy, they know
ids above its `next_producer_id`. Such an id given again would make a partition take the first
batches of a new producer for repeated ones: acked, and stored nowhere. So the ids that each opened
partition knows are passed to `on_partition_opened` before the partition takes appends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from millrace_protocol.acls import Operation, ResourceType
from millrace_protocol.messages.broker_lifecycle import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from millrace_server.api_error import ApiError
from millrace_server.controller.controller_calls import ControllerCalls
from millrace_server.metadata.cache import MetadataCache
from millrace_server.metadata.image import ClusterImage
from millrace_server.services.request_context import RequestContext

RESERVE_TIMEOUT_MS = 20_000
LEADERLESS_MS = 2_000
"""A broker that knows no controller for so long may be cut off, or its disk be full: the client
does better to ask another one."""

BLOCK_WAIT_MS = 1_000
"""How long a batch waits for the image to have the block of its producer id. Longer than the
metadata takes to a broker that follows it; not much longer, for an id that no broker has given."""

EPOCH_MAX = 2**15 - 1
FENCED = EPOCH_MAX + 1
"""Above every epoch: no batch with that id is accepted, and the id gets no further epoch."""
UNREACHED = 2**63
"""Above every producer id."""
EPOCHS_KEPT = 10_000
"""Ids whose highest epoch is remembered; about 1 MB."""
BLOCKS_KEPT = 1_000
"""Blocks that this broker remembers to have reserved: a million producers."""
Until = Callable[[Callable[[ClusterImage], bool]], Awaitable[ClusterImage]]
"""Waits for an image that meets a condition. Raises `ApiError` when the broker stops."""


class ProducerIds:
    """Gives ids from a block that the metadata log reserves; a restart begins a new block.

    Remembers the highest epoch that it gave to each id. A batch of an older epoch, sent on an
    abandoned connection, can arrive after the producer has asked for the next epoch and sent the
    same records with it: the broker refuses the older one.

    The memory covers the ids that this broker gave in this life, and `EPOCHS_KEPT` of them. Where
    the highest epoch is not known, the next one is not known either: the holder gets a new id, and
    the old id is fenced here.
    Invariant: no (id, epoch) is given twice.
    """

    def __init__(
        self,
        controller: ControllerCalls,
        cache: MetadataCache,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        until: Until,
    ) -> None:
        self._controller = controller
        self._until = until
        self._cache = cache
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        # Producers that need a block at the same time share one.
        self._reserving = asyncio.Lock()
        self._next = 0
        self._end = 0
        self._blocks: deque[range] = deque(maxlen=BLOCKS_KEPT)
        self._epochs: dict[int, int] = {}
        """The highest epoch of each id that has more than epoch 0, the oldest change first."""
        self._floor = 0
        """Above every id that a partition knows."""
        self._known_from = UNREACHED
        """Ids from here on that are not in `_epochs` have epoch 0."""

    def on_partition_opened(self, producer_ids: Iterable[int]) -> None:
        """Takes the ids that a partition knows from earlier lives of the broker.

        Partitions open in the background. An id that was given in this life already, and that the
        partition knows from an earlier one, has two holders: it is fenced, and each holder gets a
        new id.
        """
        for producer_id in producer_ids:
            self._floor = max(self._floor, producer_id + 1)
            if self._is_own(producer_id) and producer_id < self._next:
                self._note(producer_id, FENCED)

    def epoch_of(self, producer_id: int) -> int:
        """The highest epoch that was given to an id, -1 when that is not known."""
        return self._epochs.get(producer_id, -1)

    def was_given(self, producer_id: int) -> bool:
        """Whether a producer may hold this id. Those of blocks cut short by a restart count."""
        return (
            0 <= producer_id < self._cache.image.next_producer_id
            and not self._next <= producer_id < self._end
        )

    async def until_given(self, producer_id: int) -> None:
        """Returns when the image has the block of the id, or `BLOCK_WAIT_MS` is over.

        The image of the active controller has every block. Raises `ApiError` when the broker stops.
        """
        if self._controller.is_here:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(BLOCK_WAIT_MS / 1000):
                await self._until(lambda image: producer_id < image.next_producer_id)

    async def give(self, context: RequestContext, producer_id: int, epoch: int) -> tuple[int, int]:
        """An id and an epoch: the next epoch of the id given, or a new id when that is -1.

        The next epoch is above every epoch that was given for the id, and above `epoch`. A new id
        replaces one that was never given, whose epochs are used up, or whose highest is not known.
        A client that may write to some topic may have one (KIP-679). Raises `ApiError`.
        """
        _check_right(context)
        if self.was_given(producer_id):
            highest = max(self._highest(producer_id), epoch)
            if highest < EPOCH_MAX:
                self._note(producer_id, highest + 1)
                return producer_id, highest + 1
            self._note(producer_id, FENCED)
        while True:
            self._next = max(self._next, min(self._floor, self._end))
            if self._next < self._end:
                break
            await self._reserve()
        self._next += 1
        return self._next - 1, 0

    def _is_own(self, producer_id: int) -> bool:
        """Whether an id is of a block that this broker has reserved in this life."""
        return any(producer_id in block for block in self._blocks)

    def _highest(self, producer_id: int) -> int:
        is_known = producer_id >= self._known_from and self._is_own(producer_id)
        return self._epochs.get(producer_id, 0 if is_known else FENCED)

    def _note(self, producer_id: int, epoch: int) -> None:
        self._epochs.pop(producer_id, None)
        self._epochs[producer_id] = epoch
        if len(self._epochs) > EPOCHS_KEPT:
            forgotten = next(iter(self._epochs))
            del self._epochs[forgotten]
            self._known_from = max(self._known_from, forgotten + 1)

    async def _reserve(self) -> None:
        async with self._reserving:
            if self._next < self._end:
                return
            is_first = self._end == 0
            request = AllocateProducerIdsRequest(self._broker_id, self._broker_epoch(), self._floor)
            block = await self._controller.call(
                request,
                AllocateProducerIdsResponse,
                timeout_ms=RESERVE_TIMEOUT_MS,
                leaderless_ms=LEADERLESS_MS,
            )
            self._next = block.first_producer_id
            self._end = self._next + block.count
            self._blocks.append(range(self._next, self._end))
            if is_first:
                self._known_from = self._next


def _check_right(context: RequestContext) -> None:
    if context.allows_any(Operation.WRITE, ResourceType.TOPIC):
        return
    try:
        context.check_cluster(Operation.IDEMPOTENT_WRITE)
    except ApiError as error:
        raise ApiError(error.code, f"{error.message}; WRITE on any topic is enough") from None
