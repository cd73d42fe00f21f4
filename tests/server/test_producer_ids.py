"""Producer ids that are in partitions and not in the metadata."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import cast

from millrace_protocol.messages.broker_lifecycle import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from millrace_protocol.metadata_records import RegisteredListener
from millrace_server.controller.controller_calls import ControllerCalls
from millrace_server.metadata.broker_registrations import BrokerStart, register_single_broker
from millrace_server.metadata.cache import MetadataCache
from millrace_server.metadata.delta import preview
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.producer_ids import PRODUCER_ID_BLOCK, reserve_producer_ids
from millrace_server.services.producer_ids import FENCED, ProducerIds
from millrace_server.services.request_context import THIS_BROKER

LISTENER = RegisteredListener("plain", "localhost", 9092, False)
START = BrokerStart(0, uuid.UUID(int=1), (LISTENER,), None, (uuid.UUID(int=2),))


class DirectController:
    """An active controller whose records are committed at once."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache

    async def call(
        self,
        request: AllocateProducerIdsRequest,
        response: type[AllocateProducerIdsResponse],
        *,
        timeout_ms: int,
        leaderless_ms: int,
    ) -> AllocateProducerIdsResponse:
        records = reserve_producer_ids(
            self._cache.image,
            request.broker_id,
            broker_epoch=request.broker_epoch,
            at_least=request.at_least,
        )
        self._cache.image = image = preview(self._cache.image, records)
        first = image.next_producer_id - PRODUCER_ID_BLOCK
        return response(0, None, first, PRODUCER_ID_BLOCK)


def make_ids() -> tuple[ProducerIds, MetadataCache]:
    cache = MetadataCache()
    cluster_id = uuid.UUID(int=3)
    cache.image = preview(
        cache.image, register_single_broker(cache.image, START, cluster_id=cluster_id)
    )
    controller = cast(ControllerCalls, DirectController(cache))
    epoch = cache.image.brokers[0].epoch

    async def until(condition: Callable[[ClusterImage], bool]) -> ClusterImage:
        return cache.image

    ids = ProducerIds(controller, cache, broker_id=0, broker_epoch=lambda: epoch, until=until)
    return ids, cache


async def test_ids_begin_above_every_id_that_a_partition_knows() -> None:
    ids, cache = make_ids()
    ids.on_partition_opened([3, 7_000, 5])
    assert await ids.give(THIS_BROKER, -1, -1) == (7_001, 0)
    assert cache.image.next_producer_id == 7_001 + PRODUCER_ID_BLOCK


async def test_a_partition_that_opens_late_moves_the_next_id() -> None:
    ids, _ = make_ids()
    assert await ids.give(THIS_BROKER, -1, -1) == (0, 0)
    ids.on_partition_opened([10])
    assert await ids.give(THIS_BROKER, -1, -1) == (11, 0)
    ids.on_partition_opened([5 * PRODUCER_ID_BLOCK])
    assert await ids.give(THIS_BROKER, -1, -1) == (5 * PRODUCER_ID_BLOCK + 1, 0)


async def test_an_id_that_a_late_partition_knows_and_that_was_given_again_is_fenced() -> None:
    ids, _ = make_ids()
    given, _ = await ids.give(THIS_BROKER, -1, -1)
    other, _ = await ids.give(THIS_BROKER, -1, -1)
    ids.on_partition_opened([given])
    assert ids.epoch_of(given) == FENCED
    assert ids.epoch_of(other) == -1
    replaced, epoch = await ids.give(THIS_BROKER, given, 0)
    assert replaced not in (given, other)
    assert epoch == 0


async def test_ids_that_partitions_know_below_the_next_one_change_nothing() -> None:
    ids, cache = make_ids()
    cache.image = preview(cache.image, reserve_producer_ids(cache.image, 0, broker_epoch=1))
    ids.on_partition_opened(range(10))
    assert await ids.give(THIS_BROKER, -1, -1) == (PRODUCER_ID_BLOCK, 0)
    assert ids.epoch_of(3) == -1
