"""confluent-kafka: librdkafka behind a C extension; its threads count as the client's CPU time."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.contestants.work import Stopwatch, Work
from benchmarks.samples import Sample

RESPONSE_TIMEOUT_S = 10.0
QUEUE_RECORDS = 1_000_000


def security(tls_ca: str) -> dict[str, str]:
    """Settings of a connection: plain without an authority."""
    return {"security.protocol": "SSL", "ssl.ca.location": tls_ca} if tls_ca else {}


def _producer(work: Work) -> Any:
    return Producer(
        {
            **security(work.tls_ca),
            "bootstrap.servers": work.servers,
            "acks": 1,
            "linger.ms": work.linger_ms,
            "batch.size": work.batch_bytes,
            "queue.buffering.max.messages": QUEUE_RECORDS,
        }
    )


def _send(producer: Any, topic: str, value: bytes, count: int, **where: int) -> None:
    produce = producer.produce
    for _ in range(count):
        try:
            produce(topic, value, **where)
        except BufferError:
            while True:
                producer.poll(0.01)
                try:
                    produce(topic, value, **where)
                    break
                except BufferError:
                    continue
    if producer.flush(RESPONSE_TIMEOUT_S):
        raise RuntimeError(f"records were not acked within {RESPONSE_TIMEOUT_S} s")


def produce(work: Work) -> Sample:
    """`produce` without delivery callbacks, its cheapest way."""
    producer = _producer(work)
    _send(producer, work.topic, work.value, work.warm_up_records)
    watch = Stopwatch()
    _send(producer, work.topic, work.value, work.records)
    return watch.sample(work.records)


def fill(work: Work) -> Sample:
    """Writes the records that the consumers read, the same number to every partition."""
    producer = _producer(work)
    watch = Stopwatch()
    for partition in range(work.partitions):
        _send(
            producer,
            work.topic,
            work.value,
            work.records // work.partitions,
            partition=partition,
        )
    return watch.sample(work.records)


def _consumer(work: Work) -> Any:
    consumer = Consumer(
        {
            **security(work.tls_ca),
            "bootstrap.servers": work.servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            # By default a full queue is not refilled for a second, and the consumer stands still.
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign([TopicPartition(work.topic, i, 0) for i in range(work.partitions)])
    return consumer


def poll(work: Work) -> Sample:
    """A record at a time, reading its value."""
    consumer = _consumer(work)
    consume_one = consumer.poll
    if consume_one(RESPONSE_TIMEOUT_S) is None:
        raise RuntimeError("nothing to consume")
    watch = Stopwatch()
    for _ in range(work.records - 1):
        consume_one(RESPONSE_TIMEOUT_S).value()
    sample = watch.sample(work.records - 1)
    consumer.close()
    return sample


def consume(work: Work) -> Sample:
    """Lists of up to 500 messages, without reading their values."""
    consumer = _consumer(work)
    if consumer.poll(RESPONSE_TIMEOUT_S) is None:
        raise RuntimeError("nothing to consume")
    watch = Stopwatch()
    left = work.records - 1
    while left:
        messages = consumer.consume(min(500, left), RESPONSE_TIMEOUT_S)
        if not messages:
            raise RuntimeError(f"{left} records did not arrive")
        left -= len(messages)
    sample = watch.sample(work.records - 1)
    consumer.close()
    return sample
