"""Produce: appended and refused batches, and the guarantee of an ack (W-4.3, W-5)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from millrace_protocol.api import ApiKey
from millrace_protocol.errors import ERROR_TRAITS, ErrorCode
from millrace_protocol.messages.metadata import MetadataRequest, MetadataResponse
from millrace_protocol.messages.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
)
from millrace_protocol.records import (
    HEADER_SIZE,
    Codec,
    batch_positions,
    check_batch,
    encode_batch,
    read_header,
    seal,
    set_max_timestamp,
)
from millrace_server.limits import DECODED_RECORDS_MAX
from millrace_server.testing import Broker
from tests.broker.wire import (
    Wire,
    batch,
    connect,
    records_of,
    sequenced,
    values_of,
)


def altered(change: Callable[[bytearray], None], *, reseal: bool = True) -> bytes:
    """A batch of two records with something changed in it, under a right CRC."""
    made = bytearray(batch(b"one", b"two"))
    change(made)
    if reseal:
        seal(made)
    return bytes(made)


def put(position: int, value: int, size: int) -> Callable[[bytearray], None]:
    def change(made: bytearray) -> None:
        made[position : position + size] = value.to_bytes(size, "big", signed=True)

    return change


def without_max_timestamp(made: bytes) -> bytes:
    left_out = bytearray(made)
    set_max_timestamp(left_out, timestamp_ms=-1)
    return bytes(left_out)


DAMAGED = {
    "empty": b"",
    "half a header": batch(b"v")[:40],
    "cut off": batch(b"value")[:-1],
    "a byte behind it": batch(b"value") + b"\0",
    "two batches": batch(b"one") + batch(b"two"),
    "crc": altered(lambda b: b.__setitem__(-1, b[-1] ^ 1), reseal=False),
    "magic": altered(put(16, 1, 1), reseal=False),
    "length too short": altered(put(8, 20, 4), reseal=False),
    "length negative": altered(put(8, -1, 4), reseal=False),
    "length too long": altered(put(8, 2**31 - 1, 4), reseal=False),
}
FORBIDDEN = {
    "log append time": altered(put(21, 0x08, 2)),
    "transactional": altered(put(21, 0x10, 2)),
    "control": altered(put(21, 0x20, 2)),
    "unused bit": altered(put(21, 0x80, 2)),
    "no records": altered(put(57, 0, 4)),
    "more records than offsets": altered(put(57, 3, 4)),
    "fewer records than offsets": altered(put(57, 1, 4)),
    "negative last offset delta": altered(put(23, -1, 4)),
    "timestamps out of order": altered(put(35, 999, 8)),
    "timestamp below -1": altered(put(27, -2, 8)),
    "producer id without epoch": altered(put(43, 7, 8)),
    "producer id below -1": altered(put(43, -2, 8)),
    "base offset negative": altered(put(0, -1, 8)),
}


def cases(table: dict[str, bytes]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("made", table.values(), ids=table)


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("durability", ["fsync", "os"])
async def test_acked_records_can_be_read_at_once(wire: Wire, acks: int, durability: str) -> None:
    """W-4.3.1, W-4.3.2"""
    await wire.create("t", configs={"durability": durability})
    first = await wire.produce("t", batch(b"a", b"b"), acks=acks)
    second = await wire.produce("t", batch(None), acks=acks)
    assert (first.error_code, first.base_offset, first.log_start_offset) == (0, 0, 0)
    assert (second.base_offset, second.log_append_time_ms) == (2, -1)
    fetched = await wire.fetch("t", 0)
    assert fetched.high_watermark == 3
    assert values_of(fetched) == [b"a", b"b", None]


async def test_acks_0_is_never_answered_and_a_refusal_closes(broker: Broker, wire: Wire) -> None:
    """W-4.3.2"""
    await wire.create("t")
    wire.send(ProduceRequest(0, 0, (ProducePartition("t", 0, batch(b"a")),)))
    sent = wire.send(MetadataRequest(()))
    await wire.answer(MetadataResponse, sent=sent)
    entries = (ProducePartition("t", 0, batch(b"b")), ProducePartition("nope", 0, batch(b"c")))
    wire.send(ProduceRequest(0, 0, entries))
    assert await wire.closed() == b""
    async with connect(broker.port) as other:
        assert (await other.produce("t", batch(b"d"))).base_offset == 2
        assert values_of(await other.fetch("t", 0)) == [b"a", b"b", b"d"]


async def test_a_request_with_acks_0_that_is_refused_whole_is_answered(wire: Wire) -> None:
    """W-4.3.2"""
    entries = tuple(ProducePartition(f"t{n}", 0, b"") for n in range(2_001))
    assert (await wire.refused(ProduceRequest(0, 0, entries)))[0] is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("acks", [2, -2, 32_767, -32_768])
async def test_any_other_acks_is_refused_and_nothing_appended(wire: Wire, acks: int) -> None:
    """W-4.3.2"""
    await wire.create("t")
    request = ProduceRequest(acks, 1_000, (ProducePartition("t", 0, batch(b"a")),))
    code, sentence = await wire.refused(request)
    assert code is ErrorCode.INVALID_REQUIRED_ACKS
    assert str(acks) in sentence
    assert (await wire.fetch("t", 0)).high_watermark == 0


async def test_each_partition_stands_for_itself(wire: Wire) -> None:
    """W-4.3.1"""
    await wire.create("t", partitions=2)
    results = await wire.produce_all(
        [
            ("t", 1, batch(b"a")),
            ("t", 2, batch(b"b")),
            ("t", -1, batch(b"c")),
            ("nope", 0, batch(b"d")),
            ("__cluster_metadata", 0, batch(b"e")),
            ("t", 0, batch(b"f")[:-1]),
        ]
    )
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [result.error_code for result in results] == [
        ErrorCode.NONE,
        unknown,
        unknown,
        unknown,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_RECORD,
    ]
    assert [(r.base_offset, r.log_start_offset) for r in results] == [(0, 0)] + [(-1, -1)] * 5
    assert all(result.error_message for result in results[1:])
    assert "0 to 1" in (results[1].error_message or "")


@pytest.mark.parametrize("name", DAMAGED)
async def test_a_damaged_batch_leaves_no_trace_and_only_a_wrong_crc_is_retriable(
    wire: Wire, name: str
) -> None:
    """W-5.6: a client that sends any other broken batch again would do so for ever."""
    await wire.create("t")
    result = await wire.produce("t", DAMAGED[name])
    expected = {
        "crc": ErrorCode.CORRUPT_MESSAGE,
        "length too long": ErrorCode.MESSAGE_TOO_LARGE,
    }.get(name, ErrorCode.INVALID_RECORD)
    assert result.error_code == expected
    assert ERROR_TRAITS[expected].retriable is (name == "crc")
    assert (await wire.produce("t", batch(b"next"))).base_offset == 0


@cases({**DAMAGED, **FORBIDDEN})
async def test_the_sentence_about_a_refused_batch_is_one_for_people(
    wire: Wire, made: bytes
) -> None:
    """W-7.1"""
    await wire.create("t")
    sentence = (await wire.produce("t", made)).error_message or ""
    assert sentence[:1].isupper()
    assert not re.search(r"\[\w+, byte \d+\]|\b1 bytes", sentence)


@cases(FORBIDDEN)
async def test_fields_that_a_client_may_not_set_are_an_invalid_record(
    wire: Wire, made: bytes
) -> None:
    """W-5.6"""
    await wire.create("t")
    result = await wire.produce("t", made)
    assert result.error_code == ErrorCode.INVALID_RECORD
    assert result.error_message
    assert (await wire.produce("t", batch(b"next"))).base_offset == 0


@pytest.mark.parametrize("codec", [5, 6, 7])
async def test_a_codec_that_does_not_exist_is_refused_by_name(wire: Wire, codec: int) -> None:
    """W-5.6"""
    await wire.create("t")
    result = await wire.produce("t", altered(put(21, codec, 2)))
    assert result.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert str(codec) in (result.error_message or "")


@pytest.mark.parametrize("codec", list(Codec))
async def test_compressed_batches_come_back_byte_for_byte(wire: Wire, codec: Codec) -> None:
    """W-5.4, W-5.5: only base offset and leader epoch are the broker's."""
    await wire.create("t")
    made = bytes(encode_batch([b"x" * 500] * 3, timestamps_ms=[5, 6, 7], codec=codec))
    assert read_header(made).attributes == codec
    await wire.produce("t", batch(b"before"))
    await wire.produce("t", made)
    stored = bytes((await wire.fetch("t", 1)).records)
    assert stored[12 + 4 :] == made[12 + 4 :]
    assert stored[8:12] == made[8:12]
    header = read_header(stored)
    assert (header.base_offset, header.partition_leader_epoch) == (1, 0)


async def test_a_batch_larger_than_the_topic_allows_is_told_the_limit(wire: Wire) -> None:
    """W-5.6"""
    await wire.create("t", configs={"max.message.bytes": "200"})
    overhead = len(batch(b"x" * 100)) - 100
    fits = batch(b"x" * (200 - overhead))
    assert len(fits) == 200
    too_large = batch(b"x" * (201 - overhead))
    assert (await wire.produce("t", fits)).error_code == 0
    result = await wire.produce("t", too_large)
    assert result.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert "200" in (result.error_message or "")
    await wire.alter("t", {"max.message.bytes": "201"})
    assert (await wire.produce("t", too_large)).base_offset == 1


async def test_with_log_append_time_the_broker_stamps_and_seals_again(wire: Wire) -> None:
    """W-5.5"""
    await wire.create("t", configs={"message.timestamp.type": "LogAppendTime"})
    produced = await wire.produce("t", batch(b"a", b"b", timestamp_ms=5))
    fetched = await wire.fetch("t", 0)
    header = read_header(bytes(fetched.records))
    assert produced.log_append_time_ms == header.max_timestamp > 1_600_000_000_000
    assert header.attributes == 0x08
    resealed = bytearray(fetched.records)
    seal(resealed)
    assert resealed == bytes(fetched.records), "the CRC is right"
    assert {record[1] for record in records_of(fetched)} == {produced.log_append_time_ms}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
@pytest.mark.parametrize("stored_as", ["producer", "lz4"])
async def test_a_max_timestamp_that_is_missing_is_computed(
    wire: Wire, codec: Codec, stored_as: str
) -> None:
    """W-5.6: from the records, and the batch is sealed again."""
    await wire.create("t", configs={"compression.type": stored_as})
    values, stamps = [b"%d" % n * 100 for n in range(3)], [1_000, 3_000, 2_000]
    complete = bytes(encode_batch(values, timestamps_ms=stamps, codec=codec))
    await wire.produce("t", batch(b"early", timestamp_ms=500))
    assert (await wire.produce("t", without_max_timestamp(complete))).base_offset == 1
    assert (await wire.produce("t", complete)).base_offset == 4
    fetched = bytes((await wire.fetch("t", 1)).records)
    first, second = (check_batch(fetched, position) for position in batch_positions(fetched))
    assert first.max_timestamp == second.max_timestamp == 3_000
    assert first.crc == second.crc, "nothing else differs"
    assert (await wire.offset("t", 2_500)).offset == 2


async def test_a_max_timestamp_is_computed_only_from_what_can_be_read(wire: Wire) -> None:
    """W-5.6"""
    await wire.create("t")
    broken = bytearray(batch(b"a", timestamp_ms=1_000))
    broken[HEADER_SIZE:] = b"\xff" * (len(broken) - HEADER_SIZE)
    seal(broken)
    result = await wire.produce("t", without_max_timestamp(bytes(broken)))
    assert (result.error_code, result.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    many = bytes(encode_batch([b""] * (DECODED_RECORDS_MAX + 1), timestamps_ms=1_000))
    result = await wire.produce("t", without_max_timestamp(many))
    assert result.error_code == ErrorCode.INVALID_RECORD
    assert "no max timestamp" in (result.error_message or "")


async def test_timestamps_at_the_ends_of_their_range_are_stored(wire: Wire) -> None:
    await wire.create("t", configs={"message.timestamp.after.max.ms": str(2**63 - 1)})
    for timestamp_ms in (-1, 0, 2**63 - 1):
        assert (await wire.produce("t", batch(b"v", timestamp_ms=timestamp_ms))).error_code == 0
    # The last is so far from the others that a new segment begins with it.
    fetched = [record for n in (0, 2) for record in records_of(await wire.fetch("t", n))]
    assert [record[1] for record in fetched] == [-1, 0, 2**63 - 1]


async def test_a_timeout_of_0_fails_waiting_partitions_and_keeps_the_other_results(
    wire: Wire,
) -> None:
    """W-4.3.3"""
    await wire.create("slow")
    await wire.create("quick", configs={"durability": "os"})
    entries = [("slow", 0, batch(b"a")), ("quick", 0, batch(b"b")), ("slow", 1, batch(b"c"))]
    slow, quick, refused = await wire.produce_all(entries, timeout_ms=-1)
    assert slow.error_code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE)
    assert (quick.error_code, quick.base_offset) == (0, 0)
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await wire.produce("slow", batch(b"d"))).base_offset == 1


async def test_retries_of_the_last_five_batches_get_their_first_offset(wire: Wire) -> None:
    """W-4.3.4"""
    await wire.create("t")
    producer, epoch = await wire.producer_id()
    batches = [sequenced(producer, epoch, 2 * n, b"a", b"b") for n in range(6)]
    assert [(await wire.produce("t", made)).base_offset for made in batches] == list(
        range(0, 12, 2)
    )
    for n in range(1, 6):
        again = await wire.produce("t", batches[n])
        assert (again.error_code, again.base_offset) == (0, 2 * n)
    assert (await wire.fetch("t", 0)).high_watermark == 12


async def test_an_epoch_ends_when_the_next_is_given_and_not_when_it_has_written(
    broker: Broker, wire: Wire
) -> None:
    """W-4.3.4: what a connection that was given up still held arrives too late everywhere."""
    await wire.create("t", partitions=2)
    producer, epoch = await wire.producer_id()
    await wire.produce("t", sequenced(producer, epoch, 0, b"first"))
    assert await wire.producer_id(producer, epoch) == (producer, epoch + 1)
    async with connect(broker.port) as given_up:
        for partition, sequence in ((0, 1), (1, 0)):
            late = sequenced(producer, epoch, sequence, b"late")
            refused = await given_up.produce("t", late, partition=partition)
            assert refused.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
            assert "replaced epoch 0 of producer" in (refused.error_message or "")
    taken = await wire.produce("t", sequenced(producer, epoch + 1, 0, b"again"))
    assert (taken.error_code, taken.base_offset) == (0, 1)
    assert values_of(await wire.fetch("t", 0)) == [b"first", b"again"]


async def test_many_small_batches_are_appended_in_chunks_as_they_were_sent(
    broker: Broker, wire: Wire
) -> None:
    """The buffer that they came in is read into again before that."""
    await wire.create("t", partitions=30)
    batches = tuple(ProducePartition("t", n, batch(b"%d" % n)) for n in range(30))
    async with connect(broker.port) as other:
        for _ in range(3):
            sent = wire.send(ProduceRequest(1, 10_000, batches))
            other.send_body(ApiKey.METADATA, b"\xff" * 5_000)
            answer = await wire.answer(ProduceResponse, sent=sent)
            assert {result.error_code for result in answer.partitions} == {ErrorCode.NONE}
            await other.refusal()
    assert values_of(await wire.fetch("t", 0, partition=29)) == [b"29"] * 3


@pytest.mark.parametrize("durability", ["fsync", "os"])
@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
async def test_idempotence_outlives_the_broker(
    tmp_path: Path, durability: str, is_clean: bool
) -> None:
    """W-4.3.4: a copy of the data taken while it runs is what kill -9 leaves."""
    data = tmp_path / "data"
    async with Broker(data=data, topic={"durability": durability}) as broker:
        async with connect(broker.port) as wire:
            await wire.create("t")
            old = await wire.producer_id()
            producer, epoch = await wire.producer_id(*old)
            assert (producer, epoch) == (old[0], old[1] + 1)
            for n in range(3):
                await wire.produce("t", sequenced(producer, epoch, n, b"%d" % n))
        if not is_clean:
            data = tmp_path / "copy"
            copy_while_running(broker.data, data)
    async with Broker(data=data) as broker, connect(broker.port) as wire:
        assert values_of(await wire.fetch("t", 0)) == [b"0", b"1", b"2"]
        again = await wire.produce("t", sequenced(producer, epoch, 2, b"2"))
        assert (again.error_code, again.base_offset) == (0, 2)
        gap = await wire.produce("t", sequenced(producer, epoch, 4, b"4"))
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        stale = await wire.produce("t", sequenced(producer, epoch - 1, 3, b"x"))
        assert stale.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        following = await wire.produce("t", sequenced(producer, epoch, 3, b"3"))
        assert (following.error_code, following.base_offset) == (0, 3)
        fresh = await wire.producer_id()
        assert fresh[0] > producer, "an id is never given twice"


def copy_while_running(source: Path, target: Path) -> None:
    for path in sorted(source.rglob("*")):
        copy = target / path.relative_to(source)
        if path.is_dir():
            copy.mkdir(parents=True)
        else:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())


async def test_sequences_go_on_at_0_after_the_largest(wire: Wire) -> None:
    """W-4.3.4"""
    await wire.create("t")
    producer, epoch = await wire.producer_id()
    await wire.produce("t", sequenced(producer, epoch, 0, b"a"))
    jump = await wire.produce("t", sequenced(producer, epoch, 2**31 - 1, b"b"))
    assert jump.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    unknown = await wire.produce("t", sequenced(producer + 1, 0, 2**31 - 1, b"b"))
    assert unknown.error_code == ErrorCode.UNKNOWN_PRODUCER_ID
    other, epoch = await wire.producer_id()
    forgotten = await wire.produce("t", sequenced(other, epoch, 7, b"b"))
    assert forgotten.error_code == ErrorCode.UNKNOWN_PRODUCER_ID
    # Kafka's own clients go on with another epoch for this, and not without it (KIP-360).
    assert (unknown.log_start_offset, forgotten.log_start_offset) == (-1, 0)


async def test_producer_ids_are_given_once(wire: Wire) -> None:
    """W-4.6"""
    given = [await wire.producer_id() for _ in range(3)]
    assert len({producer for producer, _ in given}) == 3
    assert {epoch for _, epoch in given} == {0}
    # The next id was not given out yet, so no producer can continue with it.
    forged, epoch = await wire.producer_id(given[-1][0] + 5, 0)
    assert (forged, epoch) == (given[-1][0] + 1, 0)
    assert (await wire.producer_id(10**15, 0))[1] == 0
    renewed, epoch = await wire.producer_id(given[0][0], 2**15 - 1)
    assert renewed not in {producer for producer, _ in given}
    assert epoch == 0


async def test_no_epoch_of_a_producer_id_is_given_twice(wire: Wire) -> None:
    """W-4.6: two holders of one epoch get two epochs, and the later one fences the earlier."""
    await wire.create("t")
    producer, epoch = await wire.producer_id()
    first = await wire.producer_id(producer, epoch)
    second = await wire.producer_id(producer, epoch)
    assert (first, second) == ((producer, epoch + 1), (producer, epoch + 2))
    fenced = await wire.produce("t", sequenced(*first, 0, b"x"))
    assert fenced.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await wire.produce("t", sequenced(*second, 0, b"a"))).error_code == 0


async def test_the_broker_accepts_every_epoch_that_it_gives(wire: Wire) -> None:
    """W-4.6: also when the client asks with an older epoch than it was given."""
    await wire.create("t")
    producer, _ = await wire.producer_id()
    for asked in (5, 0, -1, 3):
        given = await wire.producer_id(producer, asked)
        assert given[0] == producer
        assert (await wire.produce("t", sequenced(*given, 0, b"a"))).error_code == 0


async def test_a_producer_id_whose_epochs_are_used_up_is_replaced_and_fenced(wire: Wire) -> None:
    """W-4.6"""
    await wire.create("t")
    producer, epoch = await wire.producer_id()
    renewed = await wire.producer_id(producer, 2**15 - 1)
    assert renewed == (producer + 1, 0)
    for old in (epoch, 2**15 - 1):
        refused = await wire.produce("t", sequenced(producer, old, 0, b"late"))
        assert refused.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await wire.producer_id(producer, epoch))[0] == producer + 2


async def test_after_a_restart_a_producer_id_is_replaced_and_fenced(broker: Broker) -> None:
    """W-4.6: the broker does not remember which epochs it gave before."""
    async with connect(broker.port) as wire:
        await wire.create("t")
        old = await wire.producer_id(*await wire.producer_id())
        assert (await wire.produce("t", sequenced(*old, 0, b"a"))).error_code == 0
    await broker.restart()
    async with connect(broker.port) as wire:
        assert (await wire.produce("t", sequenced(*old, 1, b"b"))).error_code == 0
        renewed = await wire.producer_id(*old)
        assert renewed[0] > old[0]
        late = await wire.produce("t", sequenced(*old, 2, b"late"))
        assert late.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert (await wire.produce("t", sequenced(*renewed, 0, b"c"))).error_code == 0


async def test_an_id_whose_epoch_the_broker_has_forgotten_is_replaced(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-4.6"""
    monkeypatch.setattr("millrace_server.services.producer_ids.EPOCHS_KEPT", 2)
    given = [await wire.producer_id() for _ in range(4)]
    for each in given[:3]:
        assert await wire.producer_id(*each) == (each[0], 1)
    assert (await wire.producer_id(given[0][0], 1))[0] > given[-1][0]
    assert await wire.producer_id(*given[3]) == (given[3][0], 1)


async def test_a_block_of_producer_ids_is_not_shared_by_two_lives_of_a_broker(
    broker: Broker,
) -> None:
    async with connect(broker.port) as wire:
        before = {(await wire.producer_id())[0] for _ in range(1_001)}
    await broker.restart()
    async with connect(broker.port) as wire:
        after = {(await wire.producer_id())[0] for _ in range(10)}
    assert len(before) == 1_001
    assert not before & after


async def test_pipelined_batches_are_appended_in_the_order_sent(wire: Wire) -> None:
    """W-2.6"""
    await wire.create("t")
    for n in range(50):
        wire.send(ProduceRequest(1, 5_000, (ProducePartition("t", 0, batch(b"%d" % n)),)))
    for n in range(50):
        (result,) = (await wire.answer(ProduceResponse)).partitions
        assert result.base_offset == n
    assert values_of(await wire.fetch("t", 0)) == [b"%d" % n for n in range(50)]


async def test_pipelined_batches_of_a_compacted_topic_stay_in_order_whatever_their_size(
    wire: Wire,
) -> None:
    """W-2.6: the broker looks into a long batch in turns with other work."""
    await wire.create("t", configs={"cleanup.policy": "compact"})
    long = encode_batch([b""] * 5_000, timestamps_ms=1, keys=[b"k"] * 5_000, codec=Codec.ZSTD)
    short = encode_batch([b""], timestamps_ms=1, keys=[b"k"])
    for n in range(20):
        made = bytes(short if n % 2 else long)
        wire.send(ProduceRequest(1, 30_000, (ProducePartition("t", 0, made),)))
    for n in range(20):
        (result,) = (await wire.answer(ProduceResponse)).partitions
        assert (result.error_code, result.base_offset) == (0, n // 2 * 5_001 + n % 2 * 5_000)


async def test_a_batch_of_a_mebibyte_keeps_its_bytes(wire: Wire) -> None:
    await wire.create("t")
    value = bytes(range(256)) * 4_000
    assert (await wire.produce("t", batch(value))).error_code == 0
    assert values_of(await wire.fetch("t", 0)) == [value]


async def test_a_request_with_batches_for_many_partitions_is_appended_as_a_whole(
    wire: Wire,
) -> None:
    await wire.create("many", partitions=100)
    entries = [("many", number, batch(bytes(1_000))) for number in range(100)]
    for count in range(3):
        results = await wire.produce_all(entries)
        assert [(r.error_code, r.base_offset) for r in results] == [(0, count)] * 100
