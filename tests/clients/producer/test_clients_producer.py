"""The producer against a fake broker: results and errors that a caller sees."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, assert_type

import pytest

from millrace import Delivery, Producer, Receipt, Receipts, State
from millrace.errors import (
    BufferFull,
    ClientFailed,
    Closed,
    ConfigError,
    ConnectionFailed,
    DeliveryFailed,
    DeliveryTimeout,
    InvalidRecord,
    MessageTooLarge,
    UnknownTopicOrPartition,
)
from millrace.events import EventKind
from millrace_protocol.api import ApiKey
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.produce import (
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
)
from millrace_protocol.records import decode_records
from millrace_protocol.schema import Message
from tests.clients.fake_broker import FakeBroker, HangUp, Refuse
from tests.hang_timeout import HANG_TIMEOUT_S


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker({"t": 3, "one": 1}) as broker:
        yield broker


def values(broker: FakeBroker, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record[3] for record in broker.logs[topic, partition].records()]


async def test_an_awaited_send_returns_where_the_record_is(broker: FakeBroker) -> None:
    async with Producer(broker.address) as producer:
        await producer.send("one", b"a", timestamp_ms=5)
        receipt = await producer.send("one", b"b", key=b"k", headers=(("h", b"x"),), timestamp_ms=6)
    assert receipt == Receipt("one", 0, 1, 6)
    assert broker.logs["one", 0].records()[1] == (1, 6, b"k", b"b", (("h", b"x"),))


async def test_an_awaited_send_does_not_linger(broker: FakeBroker) -> None:
    async with Producer(broker.address, linger_ms=60_000, delivery_timeout_ms=60_000) as producer:
        async with asyncio.timeout(HANG_TIMEOUT_S):
            await producer.send("t", b"a")


async def test_settled_waits_for_acks_and_lets_the_records_linger(broker: FakeBroker) -> None:
    async with Producer(broker.address, linger_ms=60_000) as producer:
        deliveries = producer.send_many("one", [b"a", b"b"])
        waiting = asyncio.create_task(deliveries.settled())
        # Round trips, after which an awaited batch would have been sent.
        for _ in range(3):
            await producer.send("t", b"x")
        assert values(broker, "one") == []
        assert not waiting.done()
        producer.send("one", b"c")
        await producer.flush()
        assert [receipt.offset for receipt in await waiting] == [0, 1]
    assert values(broker, "one") == [b"a", b"b", b"c"]


async def test_settled_raises_the_failure_and_close_does_not_repeat_it(
    broker: FakeBroker,
) -> None:
    producer = Producer(broker.address, linger_ms=0)
    await producer.start()
    deliveries = producer.send_many("nosuch", [b"a"])
    with pytest.raises(UnknownTopicOrPartition):
        await deliveries.settled()
    await producer.close()


async def test_records_not_awaited_travel_together_and_in_order(broker: FakeBroker) -> None:
    sent = [b"%d" % i for i in range(1000)]
    async with Producer(broker.address) as producer:
        deliveries = [producer.send("one", value) for value in sent]
        await producer.flush()
        receipts = [await delivery for delivery in deliveries]
    assert values(broker, "one") == sent
    assert [receipt.offset for receipt in receipts] == list(range(1000))
    assert broker.count(ApiKey.PRODUCE) < 20


async def test_keys_go_where_every_kafka_client_puts_them(broker: FakeBroker) -> None:
    broker.topics["ten"] = 10
    async with Producer(broker.address) as producer:
        # The vectors of Kafka's UtilsTest for murmur2.
        receipts = [await producer.send("ten", b"", key=key) for key in (b"21", b"foobar")]
    assert [receipt.partition for receipt in receipts] == [
        (-973932308 & 0x7FFFFFFF) % 10,
        (-790332482 & 0x7FFFFFFF) % 10,
    ]


async def test_a_partitioner_of_the_users_is_asked(broker: FakeBroker) -> None:
    def last(topic: str, key: bytes | None, count: int) -> int:
        return count - 1

    async with Producer(broker.address, partitioner=last) as producer:
        receipts = await producer.send_many("t", [b"a", b"b"])
        assert {receipt.partition for receipt in receipts} == {2}
        assert (await producer.send("t", b"c", partition=1)).partition == 1


@pytest.mark.parametrize("keyed", [False, True])
async def test_send_many_acks_all_in_the_callers_order(broker: FakeBroker, keyed: bool) -> None:
    sent = [b"%d" % i for i in range(5000)]
    keys = [b"%d" % (i % 50) for i in range(5000)] if keyed else None
    async with Producer(broker.address, batch_bytes=2000) as producer:
        receipts = await producer.send_many("t", sent, keys=keys)
    assert len(receipts) == 5000
    for value, receipt in zip(sent, receipts, strict=True):
        assert values_at(broker, receipt) == value
    assert receipts[-1] == list(receipts)[-1]
    assert sum(len(broker.logs["t", p].records()) for p in range(3)) == 5000


async def test_records_with_and_without_keys_keep_their_order_in_one_partition(
    broker: FakeBroker,
) -> None:
    sent = [b"%d" % i for i in range(100)]
    keys = [None if i % 3 else b"k%d" % (i % 7) for i in range(100)]
    async with Producer(broker.address) as producer:
        for _ in ("before anything is known of the topic", "after"):
            producer.send_many("one", sent, keys=keys)
            for key, value in zip(keys, sent, strict=True):
                producer.send("one", value, key=key)
            await producer.flush()
    assert values(broker, "one") == sent * 4


def values_at(broker: FakeBroker, receipt: Receipt) -> bytes | None:
    log = broker.logs[receipt.topic, receipt.partition]
    for batch in log.batches:
        base = int.from_bytes(batch[:8], "big")
        last = base + int.from_bytes(batch[23:27], "big")
        if base <= receipt.offset <= last:
            return decode_records(batch)[receipt.offset - base][3]
    raise AssertionError(f"{receipt} is in no batch")


async def test_send_many_takes_more_than_the_buffer_holds(broker: FakeBroker) -> None:
    async with Producer(
        broker.address, buffer_bytes=20_000, max_request_bytes=10_000, batch_bytes=5_000
    ) as producer:
        receipts = await producer.send_many("one", [bytes(100)] * 2000)
        assert len(receipts) == 2000
        assert producer.health().buffered_bytes == 0
    assert len(values(broker, "one")) == 2000


async def test_send_many_takes_all_at_once_and_is_awaited_for_the_acks(
    broker: FakeBroker,
) -> None:
    async with Producer(
        broker.address, buffer_bytes=20_000, max_request_bytes=10_000, batch_bytes=5_000
    ) as producer:
        sent = [b"%04d" % i + bytes(100) for i in range(1000)]
        given = list(sent)
        deliveries = producer.send_many("one", given, partition=0)
        given.clear()
        assert len(deliveries) == 1000
        assert not deliveries.done()
        with pytest.raises(BufferFull, match=r"earlier send_many.*await producer\.room"):
            producer.send("one", b"overtakes")
        await producer.room()
        last = producer.send("one", b"last")
        await producer.flush()
        assert deliveries.done()
        assert [receipt.offset for receipt in await deliveries] == list(range(1000))
        assert (await last).offset == 1000
    assert values(broker, "one") == [*sent, b"last"]


async def test_an_unawaited_send_many_is_raised_by_flush(broker: FakeBroker) -> None:
    async with Producer(broker.address, retry_backoff_ms=1) as producer:
        producer.send_many("nope", [b""] * 3)
        with pytest.raises(DeliveryFailed, match="3 records"):
            await producer.flush()
        await producer.send("one", b"known")
        small = producer.send_many("one", [b"a", bytes(17 << 20), b"b"])
        with pytest.raises(MessageTooLarge):
            await small
        await producer.flush()
    assert values(broker, "one") == [b"known", b"a", b"b"]


async def test_a_closed_producer_fails_records_that_never_fitted(broker: FakeBroker) -> None:
    broker.script(ApiKey.PRODUCE, lambda request, default: None)
    producer = Producer(
        broker.address, buffer_bytes=20_000, max_request_bytes=10_000, batch_bytes=5_000
    )
    await producer.start()
    deliveries = producer.send_many("one", [bytes(100)] * 1000)
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    with pytest.raises(Closed):
        await deliveries


async def test_records_of_every_kind_in_one_batch_keep_their_own_key_headers_and_time(
    broker: FakeBroker,
) -> None:
    async with Producer(broker.address, linger_ms=60_000) as producer:
        await producer.send("one", b"0", timestamp_ms=1)
        producer.send("one", b"plain", timestamp_ms=2)
        producer.send("one", b"keyed", key=b"k", timestamp_ms=3)
        producer.send("one", b"with", headers=(("h", b""),), timestamp_ms=3)
        producer.send_many("one", [b"many", b"more"], timestamps_ms=[9, 8])
        producer.send_many("one", [b"same", b"time"], timestamps_ms=5, keys=[None, b"x"])
        deliveries = [producer.send("one", b"now") for _ in range(3)]
        await producer.flush()
        times = [(await delivery).timestamp_ms for delivery in deliveries]
    records = [record[1:] for record in broker.logs["one", 0].records()]
    assert records[1:8] == [
        (2, None, b"plain", ()),
        (3, b"k", b"keyed", ()),
        (3, None, b"with", (("h", b""),)),
        (9, None, b"many", ()),
        (8, None, b"more", ()),
        (5, None, b"same", ()),
        (5, b"x", b"time", ()),
    ]
    assert [record[:3] for record in records[8:]] == [(at, None, b"now") for at in times]
    assert broker.count(ApiKey.PRODUCE) == 2


async def test_a_loop_of_sends_to_a_new_topic_does_not_fill_the_buffer_first(
    broker: FakeBroker,
) -> None:
    async with Producer(broker.address) as producer:
        most = 0
        for _ in range(30_000):
            await producer.room()
            producer.send("one", bytes(100))
            waiting = producer._accumulator.unassigned_batches()
            most = max(most, sum(batch.size_bytes for batch in waiting))
        await producer.flush()
    assert 0 < most < 30_000 * 118
    assert len(values(broker, "one")) == 30_000


async def test_no_request_is_larger_than_its_bound(broker: FakeBroker) -> None:
    sizes: list[int] = []

    def measured(request: ProduceRequest, default: Any) -> Any:
        sizes.append(sum(len(each.records) for each in request.partitions))
        return default(request)

    broker.script(ApiKey.PRODUCE, measured)
    async with Producer(broker.address, max_request_bytes=10_000, linger_ms=60_000) as producer:
        await producer.send_many("one", [bytes(100)] * 1_000)
    assert len(values(broker, "one")) == 1_000
    assert 9_000 < max(sizes) <= 10_000


async def test_a_full_buffer_refuses_and_room_waits(broker: FakeBroker) -> None:
    answer = asyncio.Event()

    async def slow(request: Message, default: Any) -> Any:
        await answer.wait()
        return default(request)

    broker.script(ApiKey.PRODUCE, slow)
    async with Producer(
        broker.address, buffer_bytes=20_000, max_request_bytes=10_000, batch_bytes=5_000
    ) as producer:
        taken = 0
        with pytest.raises(BufferFull, match=r"await producer\.room"):
            while True:
                producer.send("one", bytes(1000))
                taken += 1
        assert taken == 20_000 // 1018
        waiting = asyncio.ensure_future(producer.room())
        await asyncio.sleep(0)
        assert not waiting.done()
        answer.set()
        await waiting
        producer.send("one", bytes(9000))
        await producer.flush()
    assert len(values(broker, "one")) == taken + 1


async def test_a_loop_around_send_and_room_lets_others_run(broker: FakeBroker) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with Producer(broker.address, batch_bytes=1000) as producer:
        await producer.send("one", b"")
        task = asyncio.create_task(other())
        for _ in range(1000):
            producer.send("one", bytes(100))
            await producer.room()
        task.cancel()
    assert turns > 50


async def test_records_sent_before_the_topic_is_known_keep_their_order(broker: FakeBroker) -> None:
    async with Producer(broker.address) as producer:
        deliveries = [producer.send("one", b"%d" % i) for i in range(10)]
        assert [(await d).offset for d in deliveries] == list(range(10))


async def test_a_topic_that_is_not_there_is_an_error(broker: FakeBroker) -> None:
    async with Producer(broker.address, retry_backoff_ms=1) as producer:
        with pytest.raises(UnknownTopicOrPartition, match="nope"):
            await producer.send("nope", b"")
        with pytest.raises(UnknownTopicOrPartition, match="nope"):
            await producer.send_many("nope", [b""])


async def test_an_invalid_record_is_refused_before_it_is_buffered(broker: FakeBroker) -> None:
    text: Any = "text"
    async with Producer(broker.address) as producer:
        with pytest.raises(TypeError, match="value: must be bytes or None, not str"):
            producer.send("t", text)
        with pytest.raises(TypeError, match="key_serializer"):
            producer.send("t", b"", key=text)
        with pytest.raises(TypeError, match="headers"):
            producer.send("t", b"", headers=((b"name", text),))  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="value"):
            await producer.send_many("t", [b"", text])
        with pytest.raises(ValueError, match="keys: 1 for 2"):
            await producer.send_many("t", [b"", b""], keys=[b""])
        with pytest.raises(ValueError, match="timestamp_ms"):
            producer.send("t", b"", timestamp_ms=-1)
        with pytest.raises(MessageTooLarge):
            producer.send("t", bytes(17 << 20))
        assert producer.health().buffered_records == 0


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"timestamp_ms": 1.5}, "timestamp_ms: whole milliseconds"),
        ({"timestamp_ms": "5"}, "timestamp_ms: whole milliseconds"),
        ({"partition": "0"}, "partition: a number"),
        ({"partition": 0.5}, "partition: a number"),
        ({"topic": None}, "topic: a str, not NoneType"),
        ({"topic": b"t"}, "topic: a str, not bytes"),
        ({"topic": "\udc80"}, "topic: .* has no UTF-8 form"),
        ({"topic": "t" * 40_000}, "topic: 40000 characters"),
        ({"headers": [("\udc80", b"")]}, "headers: .* has no UTF-8 form"),
        ({"headers": {"a": b""}}, "not a mapping"),
    ],
)
async def test_an_argument_that_cannot_be_encoded_harms_no_other_record(
    broker: FakeBroker, wrong: dict[str, Any], sentence: str
) -> None:
    arguments: dict[str, Any] = {"topic": "new", **wrong}
    columns = {"timestamp_ms": "timestamps_ms", "headers": "headers"}
    many: dict[str, Any] = {
        columns.get(name, name): [value] if name in columns else value
        for name, value in arguments.items()
    }
    async with Producer(broker.address) as producer:
        with pytest.raises((TypeError, ValueError), match=sentence):
            producer.send(value=b"", **arguments)
        with pytest.raises((TypeError, ValueError), match=sentence.replace("_ms:", "s_ms:")):
            producer.send_many(values=[b""], **many)
        await producer.send("one", b"another")
    assert values(broker, "one") == [b"another"]


async def test_a_mutable_value_is_copied_when_it_is_sent(broker: FakeBroker) -> None:
    value: Any = bytearray(b"before")
    async with Producer(broker.address) as producer:
        delivery = producer.send("one", value)
        value[:] = b"behind"
        await delivery
    assert values(broker, "one") == [b"before"]


def decimal(number: int) -> bytes:
    return b"%d" % number


async def test_serializers_are_typed(broker: FakeBroker) -> None:
    async with Producer(
        broker.address, key_serializer=decimal, value_serializer=str.encode
    ) as producer:
        assert_type(producer, Producer[int, str])
        await producer.send("one", "text", key=7)
        await producer.send_many("one", ["more", None], keys=[8, None])
    plain = Producer(broker.address)
    assert_type(plain, Producer[bytes, bytes])
    assert [r[2:4] for r in broker.logs["one", 0].records()] == [
        (b"7", b"text"),
        (b"8", b"more"),
        (None, None),
    ]


async def test_an_unawaited_failure_is_raised_by_flush_once(broker: FakeBroker) -> None:
    async with Producer(broker.address, retry_backoff_ms=1) as producer:
        producer.send("nope", b"")
        with pytest.raises(DeliveryFailed, match="1 record in 1 batch") as failed:
            await producer.flush()
        assert isinstance(failed.value.failures[0], UnknownTopicOrPartition)
        await producer.flush()
        assert producer.health().failed_records == 1


async def test_an_unawaited_failure_is_raised_by_close(broker: FakeBroker) -> None:
    with pytest.raises(DeliveryFailed):
        async with Producer(broker.address, retry_backoff_ms=1) as producer:
            producer.send("nope", b"")


async def test_an_awaited_failure_is_not_raised_again(broker: FakeBroker) -> None:
    async with Producer(broker.address, retry_backoff_ms=1) as producer:
        first, second = producer.send("nope", b""), producer.send("nope", b"")
        with pytest.raises(UnknownTopicOrPartition):
            await first
        with pytest.raises(UnknownTopicOrPartition):
            await second
        await producer.flush()


async def test_a_record_that_is_not_acked_in_time_fails(broker: FakeBroker) -> None:
    broker.script(ApiKey.PRODUCE, lambda request, default: None)
    async with Producer(broker.address, delivery_timeout_ms=50, linger_ms=0) as producer:
        with pytest.raises(DeliveryTimeout, match="the log may have what was sent"):
            await producer.send("one", b"")


async def test_a_producer_that_tries_again_says_why(broker: FakeBroker) -> None:
    def refuse(request: Any, default: Any) -> Any:
        raise Refuse(ErrorCode.DISK_FULL)

    broker.script(ApiKey.PRODUCE, refuse)
    async with Producer(
        broker.address, delivery_timeout_ms=200, linger_ms=0, retry_backoff_ms=1
    ) as producer:
        events = producer.events()
        with pytest.raises(DeliveryTimeout, match=r"The last attempt: .*refused by the test"):
            await producer.send("one", b"")
        async for event in events:
            if event.kind is EventKind.RETRYING:
                assert "refused by the test; trying again" in event.sentence
                break
        assert producer.health().last_error is not None


async def test_acks_0_does_not_wait_for_the_broker(broker: FakeBroker) -> None:
    async with Producer(broker.address, acks=0) as producer:
        receipt = await producer.send("one", b"a")
        assert receipt.offset == -1
        # An answered request on the same connection: the broker has read what came before.
        await producer._cluster.refresh(())
    assert values(broker, "one") == [b"a"]


async def test_a_value_is_let_go_once_it_is_acked(broker: FakeBroker) -> None:
    async with Producer(broker.address) as producer:
        value = b"%d" % 123456789
        delivery = producer.send("one", value)
        held = sys.getrefcount(value)
        await delivery
        gc.collect()
        assert sys.getrefcount(value) == held - 1
        assert delivery.done()


async def test_nothing_is_lost_doubled_or_reordered_when_the_broker_dies_and_returns(
    broker: FakeBroker,
) -> None:
    produced = 0

    def die_now_and_then(request: Message, default: Any) -> Any:
        nonlocal produced
        produced += 1
        if produced % 5 == 0:
            default(request)
            raise HangUp
        if produced % 7 == 0:
            raise HangUp
        return default(request)

    broker.script(ApiKey.PRODUCE, die_now_and_then)
    sent = [b"%06d" % i for i in range(2000)]
    async with Producer(broker.address, batch_bytes=1000, retry_backoff_ms=1) as producer:
        deliveries = []
        for i, value in enumerate(sent):
            deliveries.append(producer.send("one", value))
            if i % 500 == 499:
                await deliveries[-300]
        await broker.stop()
        await broker.start()
        broker.script(ApiKey.PRODUCE, None)
        await producer.flush()
        offsets = [(await delivery).offset for delivery in deliveries]
    assert produced > 10
    assert values(broker, "one") == sent
    assert offsets == list(range(2000))


async def test_a_partition_that_moves_is_followed(broker: FakeBroker) -> None:
    async with FakeBroker({"one": 1}, node_id=1) as other:
        leader = 0
        for each, peer in ((broker, other), (other, broker)):
            each.leader_of = lambda topic, partition: leader
            each.peers = {peer.node_id: (peer.host, peer.port)}
        # Replicas of one log.
        other.logs = broker.logs
        async with Producer(broker.address, retry_backoff_ms=1) as producer:
            await producer.send("one", b"a")
            leader = 1
            await producer.send("one", b"b")
        assert other.count(ApiKey.PRODUCE) == 1
    assert values(broker, "one") == [b"a", b"b"]


async def test_a_gap_in_the_sequence_is_closed_with_a_new_epoch(broker: FakeBroker) -> None:
    refused = False

    def refuse_first(request: ProduceRequest, default: Any) -> Any:
        nonlocal refused
        if not refused:
            refused = True
            (wanted,) = request.partitions
            code = ErrorCode.INVALID_RECORD
            return ProduceResponse(
                (ProducePartitionResult("one", wanted.partition, code, "odd", -1, -1, -1),)
            )
        return default(request)

    broker.script(ApiKey.PRODUCE, refuse_first)
    async with Producer(broker.address, batch_bytes=300, retry_backoff_ms=1) as producer:
        events = producer.events()
        deliveries = [producer.send("one", b"%03d" % i + bytes(100)) for i in range(20)]
        outcomes = await asyncio.gather(*map(settled, deliveries), return_exceptions=True)
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert failed and all(isinstance(error, InvalidRecord) for error in failed)
        kinds = []
        async for event in events:
            kinds.append(event.kind)
            if event.kind is EventKind.PRODUCER_EPOCH:
                break
    kept = [(value or b"")[:3] for value in values(broker, "one")]
    assert kept == [b"%03d" % i for i in range(len(failed), 20)]


async def settled(delivery: Delivery) -> Receipt:
    return await delivery


async def test_cancelling_an_await_gives_up_the_wait_and_not_the_record(
    broker: FakeBroker,
) -> None:
    for steps in range(12):
        async with Producer(broker.address) as producer:
            first, second = producer.send("one", b"a"), producer.send("one", b"b")
            waiting = asyncio.create_task(settled(first))
            for _ in range(steps):
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert (await second).offset == (await first).offset + 1
            assert producer.health().buffered_records == 0
    assert values(broker, "one") == [b"a", b"b"] * 12


@pytest.mark.parametrize("call", ["flush", "close", "send_many", "room"])
async def test_cancelling_any_call_at_any_point_leaves_a_producer_that_works_or_is_closed(
    broker: FakeBroker, call: str
) -> None:
    for steps in range(25):
        async with Producer(
            broker.address, buffer_bytes=4000, max_request_bytes=1000, batch_bytes=500
        ) as producer:
            for _ in range(20):
                producer.send("one", bytes(100))
            call_it: dict[str, Callable[[], Awaitable[object]]] = {
                "flush": producer.flush,
                "close": producer.close,
                "send_many": lambda: producer.send_many("one", [bytes(100)] * 50),
                "room": producer.room,
            }
            task = asyncio.ensure_future(call_it[call]())
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            outcome = (await asyncio.gather(task, return_exceptions=True))[0]
            assert outcome is None or isinstance(
                outcome, asyncio.CancelledError | Receipts | DeliveryFailed
            )
            if call == "close":
                if producer.health().state is State.CLOSED:
                    assert producer.health().buffered_records == 0
                    with pytest.raises(Closed):
                        producer.send("one", b"")
                producer._settlement._unobserved.clear()
            else:
                await producer.room()
                await producer.send("one", b"works")
                await producer.flush()
                assert producer.health().buffered_bytes == 0


async def test_a_close_that_is_cancelled_leaves_no_connection(broker: FakeBroker) -> None:
    for steps in range(1, 10):
        producer = Producer(broker.address)
        await producer.start()
        await producer.send("one", b"")
        closing = asyncio.create_task(producer.close())
        for _ in range(steps):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        await broker.until_disconnected()
        assert producer.health().state is State.CLOSED


async def test_the_death_of_the_task_fails_all_that_waits_and_all_that_comes(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer(broker.address)
    await producer.start()
    await producer.send("one", b"")

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(producer._produce_queue, "drain", broken)
    with pytest.raises(ClientFailed, match="a bug") as failed:
        await producer.send("one", b"")
    assert isinstance(failed.value.__cause__, ZeroDivisionError)
    with pytest.raises(ClientFailed):
        producer.send("one", b"")
    with pytest.raises(ClientFailed):
        await producer.flush()
    assert producer.health().state is State.FAILED
    await producer.close()


async def test_a_producer_that_is_not_running_says_so(broker: FakeBroker) -> None:
    producer = Producer(broker.address)
    with pytest.raises(Closed, match="async with"):
        producer.send("one", b"")
    async with producer:
        pass
    with pytest.raises(Closed, match="closed"):
        producer.send("one", b"")
    with pytest.raises(Closed, match="make a new one"):
        await producer.start()


async def test_no_broker_is_an_error_that_names_the_address() -> None:
    with pytest.raises(ConnectionFailed, match=r"no broker at 127\.0\.0\.1:1"):
        await Producer("127.0.0.1:1").start()


async def test_an_idle_producer_sends_nothing(broker: FakeBroker) -> None:
    async with Producer(broker.address) as producer:
        await producer.send("one", b"")
        before = len(broker.requests)
        for _ in range(200):
            await asyncio.sleep(0)
        assert len(broker.requests) == before
        assert producer._sender._timer is None


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"acks": 2}, "acks"),
        ({"acks": 0, "idempotent": True}, "idempotent"),
        ({"compression": "rar"}, "compression"),
        ({"linger_ms": -1}, "linger_ms"),
        ({"batch_bytes": 0}, "batch_bytes"),
        ({"batch_bytes": 17 << 20}, "batch_bytes"),
        ({"buffer_bytes": 1 << 20}, "buffer_bytes"),
        ({"request_timeout_ms": 1.5}, "request_timeout_ms"),
        ({"lingerms": 5}, "lingerms: no such setting"),
        ({"client_id": "x" * 256}, "client_id"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Producer("localhost:9092", **options)


@pytest.mark.parametrize("servers", ["", "host:port", ":9092", "host:0", "host:70000", []])
def test_a_wrong_address_is_refused(servers: Any) -> None:
    with pytest.raises(ConfigError, match="servers"):
        Producer(servers)


@pytest.mark.parametrize(
    ("timestamp_ms", "is_told"),
    [
        (0, False),
        (1_000, False),
        (20_130_101, True),
        (1_700_000_000, True),
        (1_700_000_000_000, False),
    ],
)
async def test_seconds_and_dates_given_as_milliseconds_are_told_once(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture, timestamp_ms: int, is_told: bool
) -> None:
    async with Producer(broker.address) as producer:
        for _ in range(2):
            await producer.send("one", b"x", timestamp_ms=timestamp_ms)
            await producer.send_many("one", [b"y"], timestamps_ms=[timestamp_ms])
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == is_told
    assert all("multiply seconds by 1000" in line for line in told)
