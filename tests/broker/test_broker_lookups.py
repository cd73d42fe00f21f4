"""Lookups in batches, for offsets by time and for the text dialect."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from millrace_protocol.records import HEADER_SIZE, Codec, encode_batch, read_header, seal
from millrace_server.limits import LOOKED_AT_BYTES_MAX
from millrace_server.partitions.partition import Partition
from millrace_server.testing import Broker
from tests.broker.wire import Text, Wire, batch, connect, connect_text, until

CODECS = [codec for codec in Codec if codec is not Codec.NONE]


@pytest.fixture
async def wire(broker: Broker) -> AsyncIterator[Wire]:
    async with connect(broker.port) as connected:
        await connected.create("t")
        yield connected


@pytest.fixture
async def text(broker: Broker) -> AsyncIterator[Text]:
    async with connect_text(broker.port) as connected:
        yield connected


def compressed(values: list[bytes], codec: Codec, *, timestamps_ms: list[int] | int) -> bytes:
    made = bytes(encode_batch(values, timestamps_ms=timestamps_ms, codec=codec))
    assert read_header(made).codec is codec
    return made


@pytest.mark.parametrize("codec", CODECS)
async def test_compressed_batches_are_found_by_time_and_shown(
    wire: Wire, text: Text, codec: Codec
) -> None:
    stamps = list(range(1_000, 2_000))
    values = [b"value number %d" % stamp for stamp in stamps]
    await wire.produce("t", compressed(values, codec, timestamps_ms=stamps))
    await wire.produce("t", compressed(values, codec, timestamps_ms=3_000))
    for timestamp_ms, offset in ((0, 0), (1_000, 0), (1_700, 700), (2_000, 1_000), (3_001, -1)):
        assert (await wire.offset("t", timestamp_ms)).offset == offset
    lines = await text.ask("FETCH t 0 997 4")
    assert [line.rpartition(" ")[2] for line in lines[:-1]] == ["1997", "1998", "1999", "1000"]


@pytest.mark.parametrize("codec", CODECS)
async def test_compressed_batches_are_followed(
    broker: Broker, wire: Wire, text: Text, codec: Codec
) -> None:
    values = [b"value number %d" % number for number in range(1_000)]
    text.type("TAIL t 0")
    partition = broker.node.broker.partitions.get("t", 0)
    await until(lambda: bool(partition.watchers))
    for _ in range(3):
        await wire.produce("t", compressed(values, codec, timestamps_ms=1))
    for offset in range(3_000):
        line = await text.line()
        assert line.startswith(f"offset {offset} ")
        assert line.endswith(f" value number {offset % 1_000}")


async def test_a_batch_that_is_older_than_its_header_says_is_passed_over(wire: Wire) -> None:
    early = bytearray(batch(b"early", timestamp_ms=10))
    header = read_header(early)
    header.max_timestamp = 10_000
    early[:HEADER_SIZE] = header.pack()
    seal(early)
    for _ in range(3):
        await wire.produce("t", bytes(early))
    await wire.produce("t", batch(b"late", timestamp_ms=900))
    await wire.produce("t", bytes(early))
    assert (await wire.offset("t", 11)).offset == 3
    assert (await wire.offset("t", 901)).offset == -1


async def test_a_batch_that_is_too_large_to_be_looked_into_stands_for_itself(
    wire: Wire, text: Text
) -> None:
    """W-4.5"""
    stamps = [1_000, 2_000]
    large = [bytes(LOOKED_AT_BYTES_MAX // 2)] * 2
    await wire.produce("t", compressed(large, Codec.ZSTD, timestamps_ms=stamps))
    assert (await wire.offset("t", 1_500)).offset == 0
    assert "decompresses to more than" in (await text.ask("FETCH t 0 0"))[-1]


async def test_records_before_an_unreadable_batch_are_shown(wire: Wire, text: Text) -> None:
    broken = bytearray(batch(b"broken"))
    broken[HEADER_SIZE:] = b"\xff" * (len(broken) - HEADER_SIZE)
    seal(broken)
    await wire.produce("t", batch(b"before"))
    await wire.produce("t", bytes(broken))
    first, last = await text.ask("FETCH t 0 0")
    assert first.endswith("value before")
    assert last == "OK 1 record, next offset 1, high watermark 2"
    assert (await text.ask("FETCH t 0 1"))[-1].startswith("ERR INVALID_RECORD")


async def test_a_cancelled_lookup_delays_no_other(broker: Broker, wire: Wire) -> None:
    """A client that hangs up within a response leaves the lookups free."""
    await wire.produce("t", compressed([b"x" * 100] * 20_000, Codec.ZSTD, timestamps_ms=1))
    for _ in range(20):
        async with connect_text(broker.port) as leaving:
            leaving.type("TAIL t 0", "FETCH t 0 0 1000")
            await wire.produce("t", batch(b"more", timestamp_ms=2))
            leaving.writer.transport.abort()
    assert (await wire.offset("t", 2)).offset == 20_000


async def test_nothing_is_shown_of_a_batch_that_turns_out_to_be_broken(
    wire: Wire, text: Text
) -> None:
    """Its first records look sound, and more follow than its header says."""
    whole = bytearray(batch(b"one", b"two"))
    header = read_header(whole)
    header.record_count, header.last_offset_delta = 1, 0
    whole[:HEADER_SIZE] = header.pack()
    seal(whole)
    await wire.produce("t", batch(b"before"))
    await wire.produce("t", bytes(whole))
    first, last = await text.ask("FETCH t 0 0")
    assert first.endswith("value before")
    assert last == "OK 1 record, next offset 1, high watermark 2"
    assert (await text.ask("FETCH t 0 1"))[-1].startswith("ERR INVALID_RECORD")


async def test_one_batch_is_in_memory_however_many_ask(
    broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that waits for a lookup has not read its batch."""
    made = compressed([b"x" * 100] * 5_000, Codec.ZSTD, timestamps_ms=1)
    await wire.produce("t", made)
    read, looking = Partition.read, []

    def noted(self: Partition, *args: Any, **options: Any) -> Any:
        looking.append(broker.node.broker.lookups.is_looking)
        return read(self, *args, **options)

    monkeypatch.setattr(Partition, "read", noted)
    async with AsyncExitStack() as stack:
        texts = [await stack.enter_async_context(connect_text(broker.port)) for _ in range(20)]
        for text in texts:
            text.type("FETCH t 0 0 3")
        for text in texts:
            assert len(await text.answer()) == 4
    assert looking == [True] * 20
