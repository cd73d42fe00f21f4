"""Producer ids that the metadata forgot and partitions know."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar, cast

from millrace_server.controller.metadata_log import MetadataLog
from millrace_server.metadata.controller import PRODUCER_ID_BLOCK, Controller, TopicDefaults
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.records import MetadataRecord
from millrace_server.services.producer_ids import FENCED, ProducerIds

T = TypeVar("T")


class DirectMetadata:
    """A metadata log whose records are in force at once."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image

    async def change(self, work: Callable[[], Awaitable[T]]) -> T:
        return await work()

    async def write(self, records: Sequence[MetadataRecord]) -> None:
        for record in records:
            self._image.replay(record)


def make_ids() -> tuple[ProducerIds, ClusterImage]:
    image = ClusterImage()
    controller = Controller(image, TopicDefaults(1, 1, {}, 10), broker_count=1)
    return ProducerIds(cast(MetadataLog, DirectMetadata(image)), controller, image), image


async def test_ids_begin_above_every_id_that_a_partition_knows() -> None:
    ids, image = make_ids()
    ids.on_partition_opened([3, 7_000, 5])
    assert await ids.give(-1, -1) == (7_001, 0)
    assert image.next_producer_id == 7_001 + PRODUCER_ID_BLOCK


async def test_a_partition_that_opens_late_moves_the_next_id() -> None:
    ids, _ = make_ids()
    assert await ids.give(-1, -1) == (0, 0)
    ids.on_partition_opened([10])
    assert await ids.give(-1, -1) == (11, 0)
    ids.on_partition_opened([5 * PRODUCER_ID_BLOCK])
    assert await ids.give(-1, -1) == (5 * PRODUCER_ID_BLOCK + 1, 0)


async def test_an_id_that_a_late_partition_knows_and_that_was_given_again_is_fenced() -> None:
    ids, _ = make_ids()
    given, _ = await ids.give(-1, -1)
    other, _ = await ids.give(-1, -1)
    ids.on_partition_opened([given])
    assert ids.epoch_of(given) == FENCED
    assert ids.epoch_of(other) == -1
    replaced, epoch = await ids.give(given, 0)
    assert replaced not in (given, other)
    assert epoch == 0


async def test_ids_that_partitions_know_below_the_next_one_change_nothing() -> None:
    ids, image = make_ids()
    image.next_producer_id = PRODUCER_ID_BLOCK
    ids.on_partition_opened(range(10))
    assert await ids.give(-1, -1) == (PRODUCER_ID_BLOCK, 0)
    assert ids.epoch_of(3) == -1
