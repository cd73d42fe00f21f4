"""Short lives of a broker's storage: topics created, written, widened and deleted.

Owns the calls, and the account of what the broker has promised by any moment. A call that ends in
an error has promised nothing, and may have happened or not.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, cast

from millrace_protocol.records import decode_fetch, encode_batch
from millrace_server.api_error import ApiError
from millrace_server.broker import Broker
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.storage import is_partition, partition_directory
from millrace_server.quorum.metadata_log import METADATA_TOPIC
from millrace_server.services.delete_records import Deletion
from millrace_server.services.produce import ACKS_ALL, Produced
from millrace_server.services.request_context import THIS_BROKER
from millrace_simulation.disk import FaultyDisk
from tests.crash.machine_in_memory import broker_on

Waiting = list[Produced] | Awaitable[list[Produced]]


def _begun(append: Coroutine[Any, Any, list[Produced]]) -> Waiting:
    """What an append has at once, as a connection drives it: the result, or a wait for the ack."""
    try:
        acked = append.send(None)
    except StopIteration as end:
        return cast("list[Produced]", end.value)
    acked._asyncio_future_blocking = False

    async def rest() -> list[Produced]:
        await acked
        try:
            append.send(None)
        except StopIteration as end:
            return cast("list[Produced]", end.value)
        raise AssertionError("an append waits once")

    return rest()


@dataclass(frozen=True)
class TopicPromise:
    """One topic: its values per partition, those acked being the first `acked` of those `sent`.

    Of partition 0 the first `deleted` values are gone, and those before `may_be_deleted` may be.
    `may_be_gone` while its creation or deletion is not answered, `may_be_wider` in the midst of a
    change of its partitions.
    """

    partitions: int
    sent: tuple[tuple[bytes, ...], ...]
    acked: tuple[int, ...]
    may_be_gone: bool = False
    may_be_wider: int = 0
    deleted: int = 0
    may_be_deleted: int = 0


@dataclass(frozen=True)
class BrokerPromise:
    """What has been promised: topics by name, names that are free, and producer ids given."""

    topics: tuple[tuple[str, TopicPromise], ...] = ()
    producer_ids: tuple[int, ...] = ()


@dataclass
class BrokerLife:
    """A broker that is called, and the account of it. `refused` counts calls that failed."""

    disk: FaultyDisk
    _running: Broker | None = None
    topics: dict[str, TopicPromise] = field(default_factory=dict)
    producer_ids: list[int] = field(default_factory=list)
    refused: int = 0
    sent: int = 0

    def promise(self) -> BrokerPromise:
        return BrokerPromise(tuple(sorted(self.topics.items())), tuple(self.producer_ids))

    @property
    def broker(self) -> Broker:
        assert self._running is not None
        return self._running

    async def start(self, *, seed: int = 1) -> None:
        broker = broker_on(self.disk, seed=seed)
        await broker.start()
        self._running = broker

    async def stop(self) -> None:
        """Does nothing when the broker is stopped, or its start has failed."""
        broker, self._running = self._running, None
        if broker is not None:
            await broker.stop()

    async def create(self, name: str, *, partitions: int = 1) -> None:
        nothing: tuple[tuple[bytes, ...], ...] = ((),) * partitions
        asked = TopicPromise(partitions, nothing, (0,) * partitions, may_be_gone=True)
        # One whose creation or deletion was refused may be in the way, and be what is found.
        self.topics.setdefault(name, asked)
        if await self._done(self.broker.topics.create(THIS_BROKER, name, partitions=partitions)):
            self.topics[name] = replace(asked, may_be_gone=False)

    async def delete(self, name: str) -> None:
        if name in self.topics:
            self.topics[name] = replace(self.topics[name], may_be_gone=True)
        if await self._done(self.broker.topics.delete(THIS_BROKER, name)):
            del self.topics[name]

    async def widen(self, name: str, partitions: int) -> None:
        topic = self.topics[name]
        self.topics[name] = replace(topic, may_be_wider=partitions)
        if await self._done(self.broker.topics.add_partitions(THIS_BROKER, name, partitions)):
            more = partitions - topic.partitions
            self.topics[name] = replace(
                topic,
                partitions=partitions,
                sent=(*topic.sent, *((),) * more),
                acked=(*topic.acked, *(0,) * more),
            )

    async def produce(self, name: str, *sizes: int, partition: int = 0) -> None:
        """One batch for each size, all on their way together."""
        waits = [self._append(name, partition, size) for size in sizes]
        for base, waiting in waits:
            results = waiting if isinstance(waiting, list) else await waiting
            if results[0].code:
                self.refused += 1
                continue
            assert results[0].base_offset == base, "offsets are given in order, with no hole"
            topic = self.topics[name]
            acked = list(topic.acked)
            acked[partition] = max(acked[partition], base + 1)
            self.topics[name] = replace(topic, acked=tuple(acked))

    def _append(self, name: str, partition: int, size: int) -> tuple[int, Waiting]:
        value = b"%03d" % self.sent + b"x" * size
        self.sent += 1
        batch = memoryview(bytearray(encode_batch([value], timestamps_ms=1)))
        topic = self.topics[name]
        base = len(topic.sent[partition])
        sent = list(topic.sent)
        sent[partition] = (*sent[partition], value)
        self.topics[name] = replace(topic, sent=tuple(sent))
        waiting = _begun(
            self.broker.services.produce.append(
                THIS_BROKER, [(name, partition, batch)], acks=ACKS_ALL, timeout_ms=60_000
            )
        )
        if isinstance(waiting, list) and waiting[0].code:
            # ApiError at once: it was not appended, and its offset is the next one's.
            self.topics[name] = topic
        return base, waiting

    async def delete_records(self, name: str, offset: int) -> None:
        topic = self.topics[name]
        self.topics[name] = replace(topic, may_be_deleted=max(topic.may_be_deleted, offset))
        service = self.broker.services.delete_records
        (found,) = await service.delete(THIS_BROKER, [Deletion(name, 0, offset)])
        if isinstance(found, ApiError):
            self.refused += 1
        else:
            assert found == max(topic.deleted, offset)
            self.topics[name] = replace(self.topics[name], deleted=found)

    async def give_producer_id(self) -> None:
        try:
            given, _ = await self.broker.producer_ids.give(THIS_BROKER, -1, -1)
        except ApiError:
            self.refused += 1
            return
        assert given not in self.producer_ids
        self.producer_ids.append(given)

    async def _done(self, call: Awaitable[object]) -> bool:
        try:
            await call
        except ApiError:
            self.refused += 1
            return False
        return True


def read_partition(partition: Partition) -> list[bytes]:
    """Every value that a consumer may read."""
    found: list[bytes] = []
    offset = partition.log.start_offset
    while offset < partition.high_watermark:
        read = partition.read(offset, max_bytes=1 << 16)
        assert read.slice is not None
        data = read.slice.file.pread(read.slice.size, read.slice.position)
        read.slice.release()
        for records, offset in decode_fetch(data):  # noqa: B007 - the last one is where to go on
            found += [record[3] or b"" for record in records]
    return found


async def check_broker(disk: FaultyDisk, promise: BrokerPromise) -> None:
    """Starts a broker on what is left, and compares. Raises `AssertionError`."""
    broker = broker_on(disk, seed=99)
    await broker.start()
    promised = dict(promise.topics)
    topics = broker.image.topics
    for name in topics:
        assert name in promised, f"{name} is there and was deleted, or never asked for"
    for name, wanted in promised.items():
        if name not in topics:
            assert wanted.may_be_gone, f"{name} is gone"
            continue
        count = topics[name].partition_count
        assert count in (wanted.partitions, wanted.may_be_wider)
        for number in range(count):
            refused = broker.partitions.offline(name, number)
            assert refused is None, refused.message if refused else ""
            partition = broker.partitions.get(name, number)
            start = partition.start_offset
            if number == 0:
                assert wanted.deleted <= start <= max(wanted.deleted, wanted.may_be_deleted)
            else:
                assert start == 0
            found = read_partition(partition)
            sent = wanted.sent[number] if number < wanted.partitions else ()
            acked = wanted.acked[number] if number < wanted.partitions else 0
            end = start + len(found)
            assert end >= acked, f"{name}-{number}: {acked} acked, {end} there"
            assert found == list(sent[start:end])
    kept = {partition_directory(METADATA_TOPIC, 0)}
    kept |= {
        partition_directory(t.name, n) for t in topics.values() for n in range(t.partition_count)
    }
    left = set(disk.list_directory("")) ^ kept
    # A creation that ended before its first file was whole cannot be told from a foreign
    # directory; a later creation succeeds beside it, as `_go_on` shows.
    assert not any(is_partition(disk, name) for name in left)
    await _go_on(broker, promise)
    await broker.stop()
    assert disk.open_files == []


async def _go_on(broker: Broker, promise: BrokerPromise) -> None:
    """Free names can be taken, logs go on, producer ids are new."""
    given, _ = await broker.producer_ids.give(THIS_BROKER, -1, -1)
    assert given not in promise.producer_ids
    for name, wanted in promise.topics:
        if name not in broker.image.topics:
            await broker.topics.create(THIS_BROKER, name, partitions=wanted.partitions)
            assert broker.partitions.get(name, 0).log.end_offset == 0
        batch = memoryview(bytearray(encode_batch([b"next"], timestamps_ms=1)))
        end_offset = broker.partitions.get(name, 0).log.end_offset
        results = await broker.services.produce.append(
            THIS_BROKER, [(name, 0, batch)], acks=ACKS_ALL, timeout_ms=60_000
        )
        assert (results[0].code, results[0].base_offset) == (0, end_offset)


async def create_and_delete(life: BrokerLife) -> None:
    """Topics come, are written, go, and come again under the same name."""
    await life.start()
    await life.create("a", partitions=2)
    await life.produce("a", 60, 400)
    await life.delete("a")
    await life.create("a")
    await life.produce("a", 700)
    await life.stop()


async def write_and_widen(life: BrokerLife) -> None:
    """A topic rolls over segments, grows, and a producer asks for an id."""
    await life.start()
    await life.create("b")
    await life.produce("b", 300, 500, 500)
    await life.give_producer_id()
    await life.widen("b", 2)
    await life.produce("b", 200, partition=0)
    if len(life.topics["b"].sent) > 1:
        await life.produce("b", 50, partition=1)


async def delete_the_front(life: BrokerLife) -> None:
    """Records are deleted from the front, within a segment, across segments, and all of them."""
    await life.start()
    await life.create("a")
    await life.produce("a", 60, 60, 900, 900)
    for offset in (1, 3):
        if life.topics["a"].acked[0] >= offset:
            await life.delete_records("a", offset)
        await life.produce("a", 60)
    await life.stop()
    await life.start(seed=2)
    await life.delete_records("a", life.topics["a"].acked[0])
    await life.produce("a", 60)
    await life.stop()


async def start_again(life: BrokerLife) -> None:
    """A shutdown and a start with something to remove."""
    await life.start()
    await life.create("a")
    await life.create("c")
    await life.produce("a", 100)
    await life.produce("c", 100)
    await life.stop()
    await life.start(seed=2)
    await life.delete("c")
    await life.produce("a", 900, 900)
    await life.stop()


def at_random(seed: int) -> Callable[[BrokerLife], Awaitable[None]]:
    """A life of a few calls drawn from a seed."""

    async def live(life: BrokerLife) -> None:
        rng = random.Random(seed)
        await life.start()
        for number in range(7):
            step = rng.choice(("create", "delete", "produce", "produce", "widen", "id", "restart"))
            name = rng.choice(sorted(life.topics)) if life.topics else ""
            if step == "create" or not name:
                await life.create(rng.choice("abc"), partitions=rng.randint(1, 2))
            elif step == "delete":
                await life.delete(name)
            elif step == "widen":
                await life.widen(name, life.topics[name].partitions + 1)
            elif step == "id":
                await life.give_producer_id()
            elif step == "restart":
                await life.stop()
                await life.start(seed=number + 2)
            else:
                sizes = [rng.choice((60, 400, 900)) for _ in range(rng.randint(1, 3))]
                await life.produce(name, *sizes)

    return live


Live = Callable[[BrokerLife], Awaitable[None]]
LIVES: dict[str, Live] = {
    "create and delete": create_and_delete,
    "write and widen": write_and_widen,
    "delete the front": delete_the_front,
    "start again": start_again,
}
