"""Compacted topics through the broker: accepted records, kept records, undisturbed clients."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.fetch import FetchResponse
from millrace_protocol.messages.produce import ProducePartition, ProduceRequest, ProduceResponse
from millrace_protocol.records import Codec, encode_batch, offset_after, read_header, seal
from millrace_server.limits import DECODED_RECORDS_MAX
from millrace_server.partitions.partition import Partition
from millrace_server.testing import Broker
from tests.broker.wire import Wire, connect, fetch_request, records_of, until
from tests.hang_timeout import HANG_TIMEOUT_S

COMPACT = {"cleanup.policy": "compact", "segment.bytes": "1024"}


def keyed(*pairs: tuple[bytes | None, bytes | None], **options: Any) -> bytes:
    """A batch of records with keys."""
    keys, values = zip(*pairs, strict=True)
    return bytes(encode_batch(values, keys=keys, timestamps_ms=1_000, **options))


async def fill(wire: Wire, *, count: int = 30, configs: Mapping[str, str] = COMPACT) -> None:
    """A topic of three keys, with three segments for ten batches."""
    assert (await wire.create("t", configs=configs)).error_code == 0
    for n in range(count):
        result = await wire.produce("t", keyed((b"%d" % (n % 3), b"%03d" % n * 100)))
        assert result.error_code == 0


async def clean(broker: Broker) -> Partition:
    """One pass over what is closed and durable, in force when this returns."""
    partition = broker.node.broker.partitions.get("t", 0)
    broker.node.broker.housekeeping.look_after(partition)
    await until(lambda: not partition._flusher._is_running)
    await broker.node.broker.compactor.look_after(partition)
    await until(lambda: not partition._flusher._is_running)
    return partition


async def read_all(wire: Wire, offset: int = 0) -> list[tuple[int, bytes | None, bytes | None]]:
    """What a consumer sees from an offset on."""
    found: list[tuple[int, bytes | None, bytes | None]] = []
    while True:
        result = await wire.fetch("t", offset)
        if offset >= result.high_watermark:
            return found
        records = records_of(result, offset=offset)
        found += [(record[0], record[2], record[3]) for record in records]
        offset = offset_after(bytes(result.records), from_offset=offset)


async def test_the_last_value_of_each_key_is_left(broker: Broker, wire: Wire) -> None:
    """W-4.10"""
    await fill(wire)
    before = await read_all(wire)
    partition = await clean(broker)
    found = await read_all(wire)
    active = partition.log._chain.active.base_offset
    last = {key: offset for offset, key, _ in before if offset < active}
    assert found == [row for row in before if row[0] >= active or last[row[1]] == row[0]]
    assert len(found) < 10
    for offset in range(31):
        assert await read_all(wire, offset) == [row for row in found if row[0] >= offset]
    assert (await wire.offset("t", -2)).offset == 0
    assert (await wire.offset("t", 500)).offset == found[0][0]
    files = [path.name for path in (broker.data / "t-0").iterdir()]
    assert not [name for name in files if name.endswith("cleaned")]
    assert len([name for name in files if name.endswith(".log")]) == partition.log.segment_count


async def test_the_background_task_compacts_dirty_logs(tmp_path: Path) -> None:
    configs = {**COMPACT, "min.cleanable.dirty.ratio": "0"}
    async with (
        Broker(data=tmp_path, housekeeping_interval_ms=1) as broker,
        connect(broker.port) as wire,
    ):
        await fill(wire, configs=configs)
        log = broker.node.broker.partitions.get("t", 0).log
        await until(lambda: log.size_bytes < 3_000)
        found = await read_all(wire)
        assert {key: value for _, key, value in found} == {
            b"%d" % (n % 3): b"%03d" % n * 100 for n in (27, 28, 29)
        }


async def test_a_topic_may_become_compacted(broker: Broker, wire: Wire) -> None:
    await fill(wire, configs={"segment.bytes": "1024", "retention.ms": "-1"})
    await wire.produce("t", keyed((None, b"x" * 1000)))
    assert (await clean(broker)).log.size_bytes > 9_000
    await wire.alter("t", {"cleanup.policy": "compact,delete", "retention.ms": "-1"})
    assert (await wire.produce("t", keyed((None, b"no key")))).error_code != 0
    assert (await wire.produce("t", keyed((b"k", b"1")))).error_code == 0
    assert (await clean(broker)).log.size_bytes < 3_000
    assert len(await read_all(wire)) < 10


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_a_record_without_a_key_is_refused(wire: Wire, codec: Codec) -> None:
    """W-4.3"""
    await wire.create("t", configs=COMPACT)
    made = keyed((b"k", b"1"), (b"", b"2"), (None, b"3" * 900), codec=codec)
    refused = await wire.produce("t", made)
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert refused.error_message == (
        "Record 2 of the batch has no key, and topic 't' is compacted, which keeps the last "
        "record of each key; give every record a key, or set cleanup.policy to delete"
    )
    assert (await wire.produce("t", keyed((b"", b"empty")))).base_offset == 0


async def test_a_batch_that_compaction_could_not_read_is_refused(wire: Wire) -> None:
    """W-4.3"""
    await wire.create("t", configs=COMPACT)
    lie = bytearray(keyed((b"k", b"value")))
    lie[-1] = 100
    seal(lie)
    assert (await wire.produce("t", bytes(lie))).error_code == ErrorCode.INVALID_RECORD
    many = DECODED_RECORDS_MAX + 1
    large = encode_batch([b""] * many, keys=[b"k"] * many, timestamps_ms=0, codec=Codec.ZSTD)
    refused = await wire.produce("t", bytes(large))
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert "send smaller batches" in (refused.error_message or "")


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_long_batches_keep_their_order_while_their_keys_are_looked_for(
    broker: Broker, wire: Wire, codec: Codec
) -> None:
    """One after the other without waiting, as an idempotent producer sends them."""
    await wire.create("t", configs=COMPACT)
    producer_id, epoch = await wire.producer_id()
    sent = []
    for n in range(10):
        count = 2_000 if n % 2 else 1
        made = encode_batch(
            [b"%d" % n * 20] * count,
            keys=[b"k%d" % i for i in range(count)],
            timestamps_ms=1,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=n // 2 * 2_001 + n % 2,
        )
        sent.append(wire.send(ProduceRequest(-1, 10_000, (ProducePartition("t", 0, bytes(made)),))))
    next_offset = 0
    for n, correlation_id in enumerate(sent):
        answer = await wire.answer(ProduceResponse, sent=correlation_id)
        assert [(r.error_code, r.base_offset) for r in answer.partitions] == [(0, next_offset)]
        next_offset += 2_000 if n % 2 else 1


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_a_record_without_a_key_is_found_in_a_long_batch(wire: Wire, codec: Codec) -> None:
    await wire.create("t", configs=COMPACT)
    keys = [b"k"] * 5_000 + [None]
    made = bytes(encode_batch([b"value"] * 5_001, keys=keys, timestamps_ms=1, codec=codec))
    good = keyed((b"k", b"1"))
    sent = [
        wire.send(ProduceRequest(-1, 10_000, (ProducePartition("t", 0, each),)))
        for each in (good, made, good)
    ]
    results = [(await wire.answer(ProduceResponse, sent=each)).partitions[0] for each in sent]
    assert [result.base_offset for result in results] == [0, -1, 1]
    assert "Record 5000 of the batch" in (results[1].error_message or "")


async def test_a_hang_up_during_the_lookup_of_keys_harms_no_other(
    broker: Broker, wire: Wire
) -> None:
    await wire.create("t", configs=COMPACT)
    keys = [b"k"] * 50_000
    made = bytes(encode_batch([b"value"] * 50_000, keys=keys, timestamps_ms=1, codec=Codec.ZSTD))
    request = ProduceRequest(-1, 10_000, (ProducePartition("t", 0, made),))
    for _ in range(10):
        async with connect(broker.port) as leaving:
            leaving.send(request)
            await leaving.writer.drain()
            await wire.topic("t")
            leaving.reset()
    await until(lambda: len(broker.node.server.connections) == 1)
    before = broker.node.broker.partitions.get("t", 0).log.end_offset
    assert before % 50_000 == 0
    assert (await wire.produce("t", made)).base_offset == before


async def test_a_slow_reader_gets_the_segment_it_began(broker: Broker, wire: Wire) -> None:
    """The answer is on its way when the file it is sent from is replaced and removed."""
    configs = {**COMPACT, "segment.bytes": str(32 << 20), "max.message.bytes": str(2 << 20)}
    await wire.create("t", configs=configs)
    values = [b"%02d" % n * (1 << 19) for n in range(12)]
    for value in values:
        await wire.produce("t", keyed((b"k", value)))
    await wire.alter("t", {"segment.bytes": "1024"})
    await wire.produce("t", keyed((b"k", b"last but one")))
    await wire.produce("t", keyed((b"k", b"last")))
    async with connect(broker.port) as slow:
        sent = slow.send(fetch_request([("t", 0, 0)], max_bytes=1 << 25, partition_bytes=1 << 25))
        partition = broker.node.broker.partitions.get("t", 0)
        connection = list(broker.node.server.connections)[-1]
        await until(lambda: connection.bytes_out > 100_000)
        await clean(broker)
        assert partition.log.size_bytes < 1_100_000
        assert not (broker.data / "t-0" / f"{0:020d}.log").exists()
        assert connection.bytes_out < 11_000_000
        (result,) = (await slow.answer(FetchResponse, sent=sent)).partitions
    assert [record[3] for record in records_of(result)] == values
    assert [offset for offset, *_ in await read_all(wire)] == [11, 12, 13]


async def test_a_producer_goes_on_after_its_records_were_compacted(tmp_path: Path) -> None:
    """W-4.3.4: also when the start has nothing but the records to know it by."""
    async with Broker(data=tmp_path) as broker:
        async with connect(broker.port) as wire:
            await wire.create("t", configs=COMPACT)
            given = dict(
                zip(("producer_id", "producer_epoch"), await wire.producer_id(), strict=True)
            )
            mine = [keyed((b"k", b"%d" % n), base_sequence=n, **given) for n in range(4)]
            for made in mine[:3]:
                await wire.produce("t", made)
            for n in range(20):
                await wire.produce("t", keyed((b"k", b"%03d" % n * 100)))
            partition = await clean(broker)
            log = partition.log
            headers = [read_header(b) for b in await batches(wire)]
            assert [(h.last_offset, h.record_count) for h in headers if h.has_producer] == [(2, 0)]
        for is_lost in (False, True):
            end_offset = log.end_offset
            await broker.stop()
            if is_lost:
                (tmp_path / "t-0" / "checkpoint").unlink()
            await broker.start()
            async with connect(broker.port) as wire:
                log = broker.node.broker.partitions.get("t", 0).log
                repeated = await wire.produce("t", mine[2])
                assert (repeated.error_code, repeated.base_offset) == (0, 2)
                gap = keyed((b"k", b"x"), base_sequence=7, **given)
                refused = await wire.produce("t", gap)
                assert refused.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                assert log.end_offset == end_offset
        async with connect(broker.port) as wire:
            assert (await wire.produce("t", mine[3])).base_offset == end_offset


async def batches(wire: Wire) -> list[bytes]:
    """All batches of the topic, whole."""
    data = bytes((await wire.fetch("t", 0)).records)
    found, position = [], 0
    while position < len(data):
        size_bytes = read_header(data, position).size_bytes
        found.append(data[position : position + size_bytes])
        position += size_bytes
    return found


@pytest.mark.parametrize("end", ["delete", "stop"])
async def test_deleting_a_partition_does_not_wait_for_its_compaction(
    tmp_path: Path, end: str
) -> None:
    """A pass that would take hours at its pace is given up, and leaves nothing."""
    async with Broker(data=tmp_path, compaction_bytes_per_second=1) as broker:
        async with connect(broker.port) as wire:
            await fill(wire, count=0)
            for n in range(10):
                await wire.produce("t", keyed((b"k", b"%02d" % n * 25_000)))
            partition = broker.node.broker.partitions.get("t", 0)
            compactor = broker.node.broker.compactor
            await until(lambda: not partition._flusher._is_running)
            pass_ = asyncio.create_task(compactor.look_after(partition))
            await until(lambda: partition.background.locked() and partition.log.segment_count > 1)
            async with asyncio.timeout(HANG_TIMEOUT_S):
                if end == "delete":
                    assert (await wire.delete("t")).error_code == 0
                    assert not (tmp_path / "t-0").exists()
                else:
                    await broker.stop()
                await pass_
        if end == "stop":
            await broker.start()
            assert not list((tmp_path / "t-0").glob("*.cleaned"))
            assert broker.node.broker.partitions.get("t", 0).log.end_offset == 10


async def test_corrupt_records_are_left_as_they_are(broker: Broker, wire: Wire) -> None:
    await fill(wire)
    path = broker.data / "t-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[200] ^= 4
    path.write_bytes(content)
    partition = await clean(broker)
    assert not partition.is_cleanable
    assert path.read_bytes() == content
    assert partition.log.size_bytes > 9_000
    assert (await wire.produce("t", keyed((b"k", b"1")))).error_code == 0
