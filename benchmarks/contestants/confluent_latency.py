"""From confluent-kafka's producer to its consumer, at a steady rate, both in this process.

`python -m benchmarks.contestants.confluent_latency WORK` prints the latencies in ms as a JSON list.
The stamp is the moment at which the schedule wants the record sent.
"""

from __future__ import annotations

import json
import struct
import sys
import threading
import time

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

from benchmarks.contestants.work import Work

RATE = 1_000
RESPONSE_TIMEOUT_S = 10.0
_STAMP = struct.Struct(">q")


def _receive(consumer: Consumer, count: int, latencies_ms: list[float]) -> None:
    while len(latencies_ms) < count:
        message = consumer.poll(RESPONSE_TIMEOUT_S)
        if message is None:
            return
        value = message.value()
        if message.error() is None and value is not None:
            (due_ns,) = _STAMP.unpack_from(value)
            latencies_ms.append((time.perf_counter_ns() - due_ns) / 1e6)


def measure(work: Work) -> list[float]:
    """The latency of every record but those of the warm-up."""
    count = work.records + work.warm_up_records
    consumer = Consumer(
        {"bootstrap.servers": work.servers, "group.id": "latency", "fetch.wait.max.ms": 500}
    )
    consumer.assign([TopicPartition(work.topic, 0, OFFSET_END)])
    producer = Producer({"bootstrap.servers": work.servers, "acks": 1, "linger.ms": 0})
    # Both are connected when the clock starts.
    while consumer.position([TopicPartition(work.topic, 0)])[0].offset < 0:
        producer.produce(work.topic, _STAMP.pack(time.perf_counter_ns()), partition=0)
        producer.flush(RESPONSE_TIMEOUT_S)
        consumer.poll(0.2)
    while consumer.poll(0.5) is not None:
        pass
    latencies_ms: list[float] = []
    receiving = threading.Thread(target=_receive, args=(consumer, count, latencies_ms))
    receiving.start()
    padding = bytes(max(work.value_bytes - _STAMP.size, 0))
    began_ns = time.perf_counter_ns()
    for number in range(count):
        due_ns = began_ns + number * 1_000_000_000 // RATE
        wait_s = (due_ns - time.perf_counter_ns()) / 1e9
        if wait_s > 0:
            time.sleep(wait_s)
        producer.produce(work.topic, _STAMP.pack(due_ns) + padding, partition=0)
        producer.poll(0)
    producer.flush(RESPONSE_TIMEOUT_S)
    receiving.join()
    consumer.close()
    if len(latencies_ms) < count:
        raise RuntimeError(f"{count - len(latencies_ms)} records did not arrive")
    return latencies_ms[work.warm_up_records :]


if __name__ == "__main__":
    print(json.dumps(measure(Work.from_json(sys.argv[1]))), flush=True)
