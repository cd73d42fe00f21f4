"""The clients without an event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from millrace import TopicPartition
from millrace._consumer.fetcher import Fetcher
from millrace.errors import Closed, ConfigError, DeliveryFailed, UnknownTopicOrPartition
from millrace.sync import Admin, Consumer, Producer
from millrace_server.testing import BrokerThread
from tests.hang_timeout import HANG_TIMEOUT_S


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with BrokerThread() as broker:
        yield broker.servers


@pytest.fixture
def topic(servers: str, request: pytest.FixtureRequest) -> str:
    name = f"sync-{abs(hash(request.node.name))}"
    with Admin(servers) as admin:
        assert admin.create_topic(name, partitions=2) == 2
        assert name in admin.list_topics()
    return name


def test_sent_records_are_read(servers: str, topic: str) -> None:
    with Producer(servers) as producer:
        assert producer.send(topic, b"a", key=b"k").offset == 0
        receipts = producer.send_many(topic, [b"%d" % i for i in range(1000)])
        assert len(receipts) == 1000
        for i in range(1200):
            producer.post(topic, b"p%d" % i, key=b"k")
        producer.flush()
        assert producer.health().buffered_records == 0
    with Consumer(servers, topic) as consumer:
        records = []
        for record in consumer:
            records.append(record)
            if len(records) == 2201:
                break
        assert sum(consumer.lag().values()) == 0
    posted = [r.value for r in records if r.value is not None and r.value.startswith(b"p")]
    assert posted == [b"p%d" % i for i in range(1200)]


def test_positions_follow_the_returned_records(servers: str, topic: str) -> None:
    with Producer(servers) as producer:
        producer.send_many(topic, [b"%d" % i for i in range(100)], partition=1)
    where = TopicPartition(topic, 1)
    with Consumer(servers) as consumer:
        consumer.assign([where])
        records = iter(consumer)
        assert [next(records).offset for _ in range(3)] == [0, 1, 2]
        assert consumer.position(where) == 3
        assert next(records).offset == 3
        consumer.seek(where, 50)
        assert next(records).offset == 50
        batch = next(consumer.batches())
        assert (batch.base_offset, batch.next_offset) == (51, 100)
        assert consumer.getone(timeout_ms=1) is None
        assert consumer.end_offsets() == {where: 100}


def test_batches_end_after_the_time_without_one_and_can_be_asked_for_again(
    servers: str, topic: str
) -> None:
    where = TopicPartition(topic, 1)
    with Producer(servers) as producer, Consumer(servers) as consumer:
        consumer.assign([where])
        for first in (0, 100):
            producer.send_many(topic, [b"x"] * 100, partition=1)
            batches = list(consumer.batches(timeout_ms=200))
            assert batches[0].base_offset == first
            assert batches[-1].next_offset == first + 100


def test_without_background_all_is_read_in_the_callers_thread(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = TopicPartition(topic, 1)
    with Producer(servers) as producer:
        for _ in range(20):
            producer.send_many(topic, [bytes(10_000)] * 10, partition=1)
    monkeypatch.setattr("millrace._sync.blocking_client.loop_thread", None)
    with Consumer(servers, background=False, max_partition_bytes=300_000) as consumer:
        consumer.assign([where])
        batches = list(consumer.batches(timeout_ms=100))
        assert len(batches) > 5
        assert [record.offset for batch in batches for record in batch] == list(range(200))
        consumer.seek(where, 190)
        assert len(consumer.getmany(50)) == 10
        assert consumer.lag() == {where: 0}
    with pytest.raises(Closed):
        consumer.getone(timeout_ms=1)
    consumer.close()


def test_without_background_there_is_no_group_and_no_loop_around(servers: str, topic: str) -> None:
    with pytest.raises(ConfigError, match="background: a group needs the thread"):
        Consumer(servers, topic, group="g", background=False)
    consumer = Consumer(servers, topic, background=False)

    async def start() -> None:
        with pytest.raises(RuntimeError, match="where an event loop is running"):
            consumer.start()

    asyncio.run(start())
    with consumer:
        assert consumer.end_offsets()[TopicPartition(topic, 0)] == 0


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Has SIGINT raise KeyboardInterrupt, which it does not in what a shell runs in background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_without_background_an_interrupted_call_can_be_repeated(servers: str, topic: str) -> None:
    with Consumer(servers, topic, background=False) as consumer:
        main = threading.get_ident()
        killer = threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            killer.start()
            consumer.getone()
        killer.join()
        with Producer(servers) as producer:
            producer.send(topic, b"a")
        record = consumer.getone()
        assert record is not None
        assert record.value == b"a"


@pytest.mark.usefixtures("interruptible")
def test_without_background_an_interrupt_does_not_end_the_tasks_of_a_client(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = Fetcher._fetch
    interrupts = iter([signal.SIGINT])

    async def interrupted(self: Fetcher, *args: Any, **kwargs: Any) -> None:
        for number in interrupts:
            signal.raise_signal(number)
        await fetch(self, *args, **kwargs)

    monkeypatch.setattr(Fetcher, "_fetch", interrupted)
    with Producer(servers) as producer:
        producer.send(topic, b"a")
    with Consumer(servers, topic, background=False, start="earliest") as consumer:
        with pytest.raises(KeyboardInterrupt):
            consumer.getone()
        record = consumer.getone()
    assert record is not None
    assert record.value == b"a"


def test_failures_come_back_to_the_caller(servers: str) -> None:
    with Producer(servers, retry_backoff_ms=1) as producer:
        with pytest.raises(UnknownTopicOrPartition):
            producer.send("no-such-topic", b"")
        producer.post("no-such-topic", b"")
        with pytest.raises(DeliveryFailed):
            producer.flush()
    with pytest.raises(ConfigError):
        Producer("")
    with pytest.raises(Closed):
        producer.send("no-such-topic", b"")


async def test_works_inside_a_running_loop(servers: str, topic: str) -> None:
    with Producer(servers) as producer:
        assert producer.send(topic, b"a").offset == 0
    assert asyncio.get_running_loop().is_running()


def test_a_forked_child_may_not_use_the_parents_client_but_may_make_its_own(
    servers: str, topic: str
) -> None:
    with Producer(servers) as producer:
        producer.send(topic, b"parent", partition=0)
        child = os.fork()
        if child == 0:
            os._exit(_in_child(producer, servers, topic))
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert producer.send(topic, b"parent", partition=0).offset == 2


def _in_child(producer: Producer[Any, Any], servers: str, topic: str) -> int:
    try:
        producer.send(topic, b"child")
    except Closed:
        with Producer(servers) as own:
            return 0 if own.send(topic, b"child", partition=0).offset == 1 else 1
    return 2


LEFT_OPEN = """
import sys
from millrace.sync import Consumer

def values(servers, topic):
    with Consumer(servers, topic) as consumer:
        for record in consumer:
            yield record.value

reading = values(*sys.argv[1:])
print(next(reading).decode(), flush=True)
raise SystemExit(3)
"""


def test_a_program_ends_though_a_generator_has_not_closed_its_client(
    servers: str, topic: str
) -> None:
    with Producer(servers) as producer:
        producer.send_many(topic, [b"first", b"second"], partition=0)
    done = subprocess.run(
        [sys.executable, "-c", LEFT_OPEN, servers, topic],
        capture_output=True,
        text=True,
        timeout=HANG_TIMEOUT_S,
    )
    assert (done.returncode, done.stdout) == (3, "first\n")
    assert "Closed: Python is shutting down" in done.stderr


def test_a_group_goes_on_where_the_last_one_stopped(servers: str, topic: str) -> None:
    with Producer(servers) as producer:
        producer.send_many(topic, [b"%d" % i for i in range(100)], partition=1)
    where = TopicPartition(topic, 1)
    with Consumer(servers, topic, group=topic) as consumer:
        for record in consumer:
            if record.offset == 9:
                # Far more were taken ahead than were handed out.
                outcome = consumer.commit()[where]
                assert (outcome.is_committed, outcome.offset) == (True, 10)
            if record.offset == 19:
                break
        assert consumer.subscription() == [topic]
        assert where in consumer.assignment()
    with pytest.raises(ZeroDivisionError), Consumer(servers, topic, group=topic) as consumer:
        for record in consumer:
            assert record.offset == 20
            raise ZeroDivisionError
    with Consumer(servers, group=topic) as consumer:
        found = consumer.committed(where)[where]
        assert found is not None and found.offset == 20
    with Admin(servers) as admin:
        assert admin.list_group_offsets(topic)[where].offset == 20
        assert topic in [group.group for group in admin.list_groups()]
        assert admin.alter_group_offsets(topic, {where: 5})[where].unwrap() == 5
        admin.delete_group(topic)


def test_a_callback_is_called_and_may_not_call_back(servers: str, topic: str) -> None:
    heard: list[object] = []

    def assigned(partitions: list[TopicPartition]) -> None:
        heard.append(partitions)
        try:
            consumer.position(partitions[0])
        except RuntimeError as error:
            heard.append(str(error))

    with Producer(servers) as producer:
        producer.send(topic, b"x", partition=0)
    with Consumer(servers, topic, group=topic, on_assigned=assigned) as consumer:
        assert consumer.getone() is not None
    partitions, sentence = heard
    assert partitions == [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert "callback" in str(sentence)
