"""The look-up of committed offsets that is refused, beside assignments that change meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from millrace._consumer.counters import ConsumerCounters
from millrace._consumer.group_offsets import GroupOffsets
from millrace._consumer.positions import Positions
from millrace.config import ConsumerConfig
from millrace.errors import NotAuthorized
from millrace.events import EventFeed
from millrace.groups import CommittedOffset
from millrace.records import TopicPartition
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.list_offsets import EARLIEST

WHERE = TopicPartition("t", 0)


class Coordinator:
    """Answers each look-up when the test says so."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[
            tuple[list[TopicPartition], asyncio.Future[dict[TopicPartition, Any]]]
        ] = asyncio.Queue()

    async def fetch(self, partitions: Iterable[TopicPartition], *, timeout_ms: int) -> Any:
        answer: asyncio.Future[dict[TopicPartition, Any]]
        answer = asyncio.get_running_loop().create_future()
        self.asked.put_nowait(([*partitions], answer))
        return await answer


class Setup:
    """The offsets of one consumer, whose next retry comes after `backoff_ms`."""

    def __init__(self) -> None:
        config = ConsumerConfig(auto_commit=False)
        counters = ConsumerCounters()
        self.backoff_ms = 1
        self.coordinator = Coordinator()
        self.positions = Positions(config, rng=random.Random(1), counters=counters)
        cluster = SimpleNamespace(
            metadata=SimpleNamespace(partition_count=lambda topic: 1),
            backoff_ms=lambda attempt: self.backoff_ms,
        )
        self.offsets = GroupOffsets(
            cast(Any, self.coordinator),
            cast(Any, cluster),
            self.positions,
            cast(Any, None),
            config,
            start_at=EARLIEST,
            counters=counters,
            feed=EventFeed("a consumer"),
            wake_fetcher=lambda: None,
        )

    async def refuse(self) -> None:
        _, answer = await self.coordinator.asked.get()
        answer.set_exception(NotAuthorized("no", code=ErrorCode.GROUP_AUTHORIZATION_FAILED))


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    made = Setup()
    task = asyncio.get_running_loop().create_task(made.offsets._run())
    yield made
    task.cancel()


async def beside(work: Awaitable[None], do: Callable[[], Awaitable[None]]) -> None:
    await asyncio.gather(work, do())


async def test_a_look_up_of_an_earlier_assignment_moves_no_position(setup: Setup) -> None:
    offsets, positions = setup.offsets, setup.positions
    await beside(offsets.begin([WHERE]), setup.refuse)
    offsets.release([WHERE])
    _, earlier = await setup.coordinator.asked.get()
    positions.remove([WHERE])
    offsets.forget([WHERE])

    async def answer_both() -> None:
        _, later = await setup.coordinator.asked.get()
        looked_up = asyncio.ensure_future(offsets.looked_up())
        await asyncio.sleep(0)
        earlier.set_result({WHERE: CommittedOffset(100, "", -1, 0)})
        await looked_up
        later.set_result({WHERE: CommittedOffset(200, "", -1, 0)})

    await beside(offsets.begin([WHERE]), answer_both)
    assert positions[WHERE].position == 200


async def test_a_new_partition_does_not_wait_for_one_that_is_refused(setup: Setup) -> None:
    setup.backoff_ms = 3_600_000
    setup.offsets.assign([WHERE])
    await setup.refuse()
    other = TopicPartition("other", 0)
    setup.offsets.assign([WHERE, other])
    asked, answer = await setup.coordinator.asked.get()
    assert asked == [other]
    answer.set_result({other: None})


async def test_a_start_is_looked_up_again_where_nothing_was_committed(setup: Setup) -> None:
    setup.offsets.assign([WHERE])
    await setup.refuse()
    asked, answer = await setup.coordinator.asked.get()
    state = setup.positions[WHERE]
    assert (asked, state.reset) == ([WHERE], None)
    looked_up = asyncio.ensure_future(setup.offsets.looked_up())
    await asyncio.sleep(0)
    answer.set_result({WHERE: None})
    await looked_up
    assert (state.reset, state.no_start) == (EARLIEST, None)
