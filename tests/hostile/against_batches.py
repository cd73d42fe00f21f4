"""Attacks on the record batches: headers, payloads and producers (wire_spec.md W-5, W-4.3)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from millrace import Consumer, MillraceError
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.list_offsets import (
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from millrace_protocol.records import (
    Codec,
    CorruptBatch,
    decode_fetch,
    encode_batch,
    set_max_timestamp,
)
from tests.broker.wire import Text, Wire, batch, connect, connect_text, sequenced
from tests.hostile.attack import hostile
from tests.hostile.forgery import LYING_PAYLOADS, bombs, forged
from tests.hostile.target import FOREVER, TOPIC, Target

INT64_MAX = 2**63 - 1
LINE_BYTES_MAX = 4 << 20
"""The longest line of an answer: sixteen headers whose every byte is shown as four."""
_numbers = itertools.count()


@asynccontextmanager
async def long_lines(port: int) -> AsyncIterator[Text]:
    """A connection for lines that takes long ones."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=LINE_BYTES_MAX)
    try:
        yield Text(reader, writer)
    finally:
        writer.close()


async def _refused(target: Target, code: ErrorCode, *batches: bytes) -> str:
    async with connect(target.port) as wire:
        end = (await wire.offset(TOPIC, -1)).offset
        for made in batches:
            result = await wire.produce(TOPIC, made)
            assert result.error_code == code, (result, made[:61].hex(" "))
            assert result.base_offset == -1 and result.error_message
        assert (await wire.offset(TOPIC, -1)).offset == end
    return code.name


@hostile
async def a_batch_with_a_wrong_crc(target: Target) -> str:
    flipped = bytearray(forged())
    flipped[-1] ^= 1
    return await _refused(target, ErrorCode.CORRUPT_MESSAGE, bytes(flipped))


@hostile
async def a_batch_length_that_is_not_the_batchs(target: Target) -> str:
    lengths = (-(2**31), -1, 0, 48, 49, 60, 10_000, 1 << 19)
    lies = [forged(batch_length=length) for length in lengths]
    await _refused(target, ErrorCode.MESSAGE_TOO_LARGE, forged(batch_length=2**31 - 1))
    return await _refused(target, ErrorCode.INVALID_RECORD, *lies)


@hostile
async def no_batch_half_a_batch_and_two(target: Target) -> str:
    one = forged()
    return await _refused(
        target, ErrorCode.INVALID_RECORD, b"", b"x", one[:12], one[:60], one[:-1], one + one
    )


@hostile
async def a_record_count_negative_wrong_or_huge(target: Target) -> str:
    return await _refused(
        target,
        ErrorCode.INVALID_RECORD,
        *(forged(record_count=n) for n in (-(2**31), -1, 0, 1, 3, 2**31 - 1)),
        forged(record_count=2**31 - 1, last_offset_delta=2**31 - 2),
        forged(record_count=100, last_offset_delta=99),
    )


@hostile
async def a_last_offset_delta_inconsistent_or_overflowing(target: Target) -> str:
    return await _refused(
        target,
        ErrorCode.INVALID_RECORD,
        *(forged(last_offset_delta=n) for n in (-(2**31), -1, 0, 2, 2**31 - 1)),
        forged(base_offset=-1),
        forged(base_offset=INT64_MAX),
    )


@hostile
async def timestamps_out_of_order_or_below_minus_1(target: Target) -> str:
    return await _refused(
        target,
        ErrorCode.INVALID_RECORD,
        forged(base_timestamp=-(2**63), max_timestamp=-(2**63)),
        forged(base_timestamp=-2),
        forged(base_timestamp=INT64_MAX, max_timestamp=0),
        forged(max_timestamp=-2),
    )


@hostile
async def timestamps_at_the_end_of_int64(target: Target) -> str:
    """They are in order, so they are taken; no search, no text and no retention trips over them."""
    name = f"late-{next(_numbers)}"
    async with connect(target.port) as wire:
        configs = {
            "retention.ms": "1000",
            "segment.ms": "1000",
            "message.timestamp.after.max.ms": str(INT64_MAX),
        }
        await wire.create(name, configs=configs)
        late = forged(base_timestamp=INT64_MAX, max_timestamp=INT64_MAX)
        assert (await wire.produce(name, late)).error_code == 0
        assert (await wire.produce(name, forged(max_timestamp=INT64_MAX))).error_code == 0
        for timestamp_ms in (0, INT64_MAX - 1, INT64_MAX, MAX_TIMESTAMP):
            assert (await wire.offset(name, timestamp_ms)).offset == 0
        async with connect_text(target.port) as text:
            answer = await text.ask(f"FETCH {name} 0 0")
            assert answer[-1].startswith("OK 4 records")
            assert f"time {INT64_MAX} " in answer[0]
        await wire.delete(name)
    return "accepted, and found"


@hostile
async def magics_and_codecs_that_do_not_exist(target: Target) -> str:
    magics = [forged(magic=n) for n in (-128, -1, 0, 1, 3, 127)]
    codecs = [forged(attributes=n) for n in (5, 6, 7)]
    outcome = await _refused(target, ErrorCode.INVALID_RECORD, *magics)
    return f"{outcome}, {await _refused(target, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, *codecs)}"


@hostile
async def control_batches_and_other_attributes(target: Target) -> str:
    bits = [forged(attributes=1 << bit) for bit in range(3, 15)]
    return await _refused(
        target,
        ErrorCode.INVALID_RECORD,
        *bits,
        forged(attributes=-(2**15)),
        forged(attributes=0x30),
    )


@hostile
async def producers_that_are_half_there(target: Target) -> str:
    return await _refused(
        target,
        ErrorCode.INVALID_RECORD,
        forged(producer_id=-2, producer_epoch=0, base_sequence=0),
        forged(producer_id=-(2**63), producer_epoch=0, base_sequence=0),
        forged(producer_id=5),
        forged(producer_id=5, producer_epoch=0),
        forged(producer_id=5, producer_epoch=-(2**15), base_sequence=0),
        forged(producer_id=5, producer_epoch=0, base_sequence=-(2**31)),
    )


@hostile
async def producer_ids_that_were_never_given(target: Target) -> str:
    """Who takes ids in advance would fence the producers that get them later."""
    async with connect(target.port) as wire:
        given, _ = await wire.producer_id()
        for forged_id in (*range(given + 1, given + 50), 10**6, INT64_MAX):
            result = await wire.produce(TOPIC, sequenced(forged_id, 2**15 - 1, 0, b"x"))
            assert result.error_code == ErrorCode.UNKNOWN_PRODUCER_ID, (forged_id, result)
        honest, epoch = await wire.producer_id()
        assert (await wire.produce(TOPIC, sequenced(honest, epoch, 0, b"x"))).error_code == 0
    return "UNKNOWN_PRODUCER_ID"


@hostile
async def another_producers_id(target: Target) -> str:
    """Without authentication an id can be taken, but not silently: one of the two is told."""
    async with connect(target.port) as honest, connect(target.port) as thief:
        producer_id, epoch = await honest.producer_id()
        first = await honest.produce(TOPIC, sequenced(producer_id, epoch, 0, b"a"))
        assert first.error_code == 0
        for forged_batch, code in (
            (sequenced(producer_id, epoch, 7, b"x"), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
            (sequenced(producer_id, epoch + 1, 7, b"x"), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ):
            assert (await thief.produce(TOPIC, forged_batch)).error_code == code
        taken, newer = await thief.producer_id(producer_id, epoch)
        assert (taken, newer) == (producer_id, epoch + 1)
        stolen = await thief.produce(TOPIC, sequenced(producer_id, newer, 0, b"x"))
        assert stolen.error_code == 0
        fenced = await honest.produce(TOPIC, sequenced(producer_id, epoch, 1, b"b"))
        assert fenced.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    return "OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH"


@hostile
async def a_batch_larger_than_the_topic_takes(target: Target) -> str:
    return await _refused(target, ErrorCode.MESSAGE_TOO_LARGE, forged(bytes(1 << 20)))


async def _read_every_way(target: Target, wire: Wire, name: str, batch_name: str) -> None:
    """A batch of records that cannot be decoded gets a typed error or the header's answer."""
    result = await wire.fetch(name, 0)
    try:
        for _ in decode_fetch(bytes(result.records)):
            pass
    except CorruptBatch:
        pass
    else:
        raise AssertionError(f"{batch_name} was decoded")
    assert (await wire.offset(name, 500)).offset == 0
    assert (await wire.offset(name, MAX_TIMESTAMP)).offset == 0
    async with connect_text(target.port) as text:
        answer = await text.ask(f"FETCH {name} 0 0")
        assert answer[-1].startswith("ERR INVALID_RECORD "), (batch_name, answer[-1])


@hostile
async def records_that_are_not_what_their_header_says(target: Target) -> str:
    """The broker does not look into a batch; who does must say that it is broken."""
    async with connect(target.port) as wire:
        for batch_name, made in LYING_PAYLOADS.items():
            name = f"lie-{next(_numbers)}"
            await wire.create(name, configs=FOREVER)
            assert (await wire.produce(name, made)).error_code == 0, batch_name
            await _read_every_way(target, wire, name, batch_name)
            async with Consumer(f"127.0.0.1:{target.port}", name, start="earliest") as consumer:
                try:
                    read = await consumer.getmany(timeout_ms=5_000)
                except MillraceError as error:
                    assert "offset" in str(error) or "batch" in str(error), error
                else:
                    raise AssertionError(f"{batch_name} was read as {list(read)}")
            await wire.delete(name)
    return "accepted; INVALID_RECORD to every reader"


@hostile
async def a_tail_over_records_that_cannot_be_read(target: Target) -> str:
    name = f"tail-{next(_numbers)}"
    async with connect(target.port) as wire, connect_text(target.port) as text:
        await wire.create(name, configs={"retention.ms": "-1"})
        text.type(f"TAIL {name} 0")
        await wire.produce(name, batch(b"good"))
        while not (line := await text.line()).startswith("offset 0"):
            assert not line.startswith("ERR"), line
        await wire.produce(name, LYING_PAYLOADS["an overlong varint"])
        assert (await text.line()).startswith("ERR INVALID_RECORD ")
        assert (await text.ask("HELP"))[-1] == "OK"
        await wire.delete(name)
    return "ERR INVALID_RECORD"


@hostile
async def decompression_bombs(target: Target) -> str:
    """Asked for by time, in text and by text that follows: all that makes a broker decompress."""
    made = bombs()
    async with connect(target.port) as wire, long_lines(target.port) as text:
        for bomb_name, bomb in made.items():
            name = f"bomb-{next(_numbers)}"
            await wire.create(name, configs=FOREVER)
            assert (await wire.produce(name, bomb)).error_code == 0, bomb_name
            assert (await wire.offset(name, 500)).offset == 0
            answer = await text.ask(f"FETCH {name} 0 0 1000")
            assert answer[-1].startswith("ERR INVALID_RE"), (bomb_name, answer[-1])
            await wire.delete(name)
    return "the header's answer; ERR INVALID_RECORD"


@hostile
async def decompression_bombs_without_a_max_timestamp(target: Target) -> str:
    """The broker would compute it from the records."""
    made = bombs()
    async with connect(target.port) as wire:
        for bomb_name, bomb in made.items():
            name = f"bomb-{next(_numbers)}"
            await wire.create(name, configs=FOREVER)
            left_out = bytearray(bomb)
            set_max_timestamp(left_out, timestamp_ms=-1)
            result = await wire.produce(name, bytes(left_out))
            assert result.error_code == ErrorCode.INVALID_RECORD, bomb_name
            await wire.delete(name)
    return "INVALID_RECORD"


@hostile
async def a_thousand_questions_about_one_bomb(target: Target) -> str:
    name = f"bomb-{next(_numbers)}"
    count = target.sized(100, 2_000)
    made = bombs()
    async with connect(target.port) as wire:
        await wire.create(name, partitions=2, configs=FOREVER)
        await wire.produce(name, made["zstd"])
        await wire.produce(name, made["zstd, records without end"], partition=1)
        asked = tuple(ListOffsetsPartition(name, n % 2, 500) for n in range(count))
        answer = await wire.ask(ListOffsetsRequest(asked), ListOffsetsResponse)
        assert {p.offset for p in answer.partitions} == {0}
        await wire.delete(name)
    return "the header's answer"


@hostile
async def a_text_answer_of_gigabytes(target: Target) -> str:
    """Records whose every byte is shown as four: as much of each as is shown, and much more."""
    name = f"large-{next(_numbers)}"
    count = target.sized(60, 10_000)
    headers = [("h" * 300, b"\xff" * 300)] * 17
    value = b"\xff" * 5_000
    values = [value] * 19
    many = encode_batch(
        values, keys=values, headers=[headers] * 19, timestamps_ms=2**42, codec=Codec.ZSTD
    )
    large = [("h", b"\xff" * 16_000)] * 50
    one = bytes(encode_batch([b"\xff" * 16_000], headers=[large], timestamps_ms=2**42))
    async with connect(target.port) as wire, long_lines(target.port) as text:
        await wire.create(name, configs=FOREVER)
        assert (await wire.produce(name, one)).error_code == 0
        for _ in range(count // 19):
            assert (await wire.produce(name, bytes(many))).error_code == 0
        read, records = 0, 0
        while records <= count // 19 * 19:
            answer = await text.ask(f"FETCH {name} 0 {records} 1000")
            assert answer[-1].startswith("OK "), answer[-1]
            assert len(answer) > 1
            records += len(answer) - 1
            read += sum(map(len, answer))
        await wire.delete(name)
    return f"{read >> 20} MiB in pieces"


@hostile
async def bombs_for_a_compacted_topic(target: Target) -> str:
    """There the broker reads the records of every batch, to see that each has a key."""
    name = f"compacted-{next(_numbers)}"
    made = bombs()
    keyed = [b"k"] * 90_000
    made["many records"] = bytes(encode_batch(keyed, keys=keyed, timestamps_ms=1, codec=Codec.ZSTD))
    outcomes = set()
    async with connect(target.port) as wire:
        await wire.create(name, configs=FOREVER | {"cleanup.policy": "compact"})
        for batch_name, bomb in made.items():
            result = await wire.produce(name, bomb)
            assert (result.error_code == 0) is (batch_name == "many records"), batch_name
            outcomes.add(ErrorCode(result.error_code).name)
        await wire.delete(name)
    return ", ".join(sorted(outcomes))
