"""What three brokers on one machine carry beside one, and how fast a follower catches up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

from benchmarks.batches import batch_of
from benchmarks.broker import RunningBroker, running_broker
from benchmarks.clients import run_contestant
from benchmarks.cluster_failover import GROUP
from benchmarks.contestants.work import Work
from benchmarks.latency import paced_round
from benchmarks.processes import process_cpu_s
from benchmarks.results import RATIO_UNIT, Comparison, Fact, Row, compare
from benchmarks.running_cluster import BROKERS, RunningCluster, running_cluster
from benchmarks.samples import Sample, Spread, interleave, percentile
from benchmarks.session import Session
from benchmarks.wire import Address, BrokerConnection, produce_frame, pump
from millrace_protocol.api import ApiKey

VALUE_BYTES = 1024
CATCH_UP_TARGET = 0.5
BATCH_BYTES = 64 << 10
IN_FLIGHT = 4
ONE = "millrace, one broker"
THREE = "millrace, three brokers"


def run(session: Session) -> Iterator[Row]:
    """Comparisons of three brokers with one, then a follower that was away."""
    with (
        running_broker(session, "cluster-one") as one,
        running_cluster(session, "cluster-three") as three,
    ):
        throughput = _acked(session, one, three)
        yield throughput
        yield from _latencies(session, one, three)
        yield _spread_out(session, one, three)
        yield from _catch_up(session, one, three)


def _acked(session: Session, one: RunningBroker, three: RunningCluster) -> Comparison:
    """`send_many` of 1 KiB values with acks=all, to one partition."""
    records = session.scale.records // 7
    numbers = iter(range(1_000_000))

    def alone() -> Sample:
        topic = f"acked-{next(numbers)}"
        with one.connect() as connection:
            connection.create_topic(topic)
        return _sent(session, one.servers, topic, records, [one.pid])

    def replicated() -> Sample:
        topic = f"acked-{next(numbers)}"
        three.create_topics([topic], partitions=1)
        three.wait_until_in_sync(topic)
        return _sent(session, three.servers, topic, records, three.pids)

    session.say("cluster: throughput with acks=all")
    samples = interleave({ONE: alone, THREE: replicated}, session.scale.rounds)
    return compare(
        GROUP,
        "Send 1 KiB values with acks=all to one partition, replication factor 3 and 1",
        "MB",
        samples,
        [(THREE, ONE, None)],
        note=(
            "CPU is that of all brokers together. Every record is synced before its ack: by one "
            "broker, or by three on the same disk. Three brokers, producer and disk share two "
            "processors, so the CPU of the followers is what bounds the time."
        ),
    )


def _sent(session: Session, servers: str, topic: str, records: int, pids: Sequence[int]) -> Sample:
    work = Work(servers, topic, records, value_bytes=VALUE_BYTES, acks="all")
    session.settle()
    before_s = sum(map(process_cpu_s, pids))
    sample = run_contestant(session, "streams.send_many", work)
    cpu_s = sum(map(process_cpu_s, pids)) - before_s
    return Sample(records * VALUE_BYTES / 1e6, sample.wall_s, cpu_s)


def _latencies(session: Session, one: RunningBroker, three: RunningCluster) -> Iterator[Row]:
    """From the scheduled send to the consumer, with acks=all."""
    found: dict[str, list[Sequence[float]]] = {ONE: [], THREE: []}
    for number in range(session.scale.rounds):
        session.say(f"cluster: latency, round {number + 1}")
        topic = f"paced-{number}"
        with one.connect() as connection:
            connection.create_topic(topic)
        found[ONE].append(paced_round(session, one.servers, [one.pid], topic).latency_ms)
        three.create_topics([topic], partitions=1)
        three.wait_until_in_sync(topic)
        found[THREE].append(paced_round(session, three.servers, three.pids, topic).latency_ms)
    note = "1 000 records/s of 100 bytes, durability=fsync; from the scheduled send to the consumer"
    for name, replicas in ((ONE, 1), (THREE, 3)):
        for share, title in ((0.5, "p50"), (0.99, "p99")):
            yield Fact(
                GROUP,
                f"{title} end to end, {name.removeprefix('millrace, ')}, replication factor "
                f"{replicas}",
                "ms",
                Spread.of([percentile(latency_ms, share) for latency_ms in found[name]]),
                None,
                note if (name, title) == (ONE, "p50") else "",
            )


def _spread_out(session: Session, one: RunningBroker, three: RunningCluster) -> Row:
    """Batches of 64 KiB in the page cache, to a partition of each broker at the same time."""
    batch, _ = batch_of(BATCH_BYTES)
    count = max(session.scale.produce_bytes // BATCH_BYTES, 1)
    numbers = iter(range(1_000_000))

    def load(targets: Sequence[tuple[Address, int]], pids: Sequence[int], topic: str) -> Sample:
        with ExitStack() as stack, ThreadPoolExecutor(len(targets)) as threads:
            pumps = [
                _pump(stack, address, produce_frame(topic, batch, partition=partition), count)
                for address, partition in targets
            ]
            session.settle()
            session.warm_pages(len(targets) * count * BATCH_BYTES)
            before_s, began_s = sum(map(process_cpu_s, pids)), time.perf_counter()
            for done in [threads.submit(pump_one) for pump_one in pumps]:
                done.result()
            wall_s = time.perf_counter() - began_s
        cpu_s = sum(map(process_cpu_s, pids)) - before_s
        return Sample(len(targets) * count * BATCH_BYTES / 1e6, wall_s, cpu_s)

    def alone() -> Sample:
        topic = f"spread-{next(numbers)}"
        with one.connect() as connection:
            connection.create_topic(topic, durability="os")
        return load([(one.address, 0)], [one.pid], topic)

    def together() -> Sample:
        topic = f"spread-{next(numbers)}"
        configs = {"durability": "os", "retention.ms": "-1"}
        three.create_topics([topic], partitions=BROKERS, replication_factor=1, configs=configs)
        leaders = three.leaders(topic, BROKERS)
        targets = [(three.address(leader), number) for number, leader in enumerate(leaders)]
        return load(targets, three.pids, topic)

    session.say("cluster: MB/s of three brokers")
    interleave({ONE: alone, THREE: together}, 1)
    samples = interleave({ONE: alone, THREE: together}, session.scale.rounds)
    return compare(
        GROUP,
        "Produce batches of 64 KiB to one broker, and to each of three, durability=os",
        "MB",
        samples,
        [(THREE, ONE, None)],
        note=(
            f"One connection to each broker, {IN_FLIGHT} in flight, replication factor 1. A broker "
            "is one core: the processors of the machine, of which the load takes a part, bound the "
            "three."
        ),
    )


def _pump(stack: ExitStack, address: Address, request: bytes, count: int) -> Callable[[], None]:
    """Sends one batch, and returns what sends the others."""
    connection = stack.enter_context(BrokerConnection(address))
    response = connection.exchange(request)
    connection.decode(ApiKey.PRODUCE, response)
    return partial(
        pump,
        connection.sock,
        [request],
        count=count,
        in_flight=IN_FLIGHT,
        response_size=len(response),
    )


def _catch_up(session: Session, one: RunningBroker, three: RunningCluster) -> Iterator[Row]:
    """A follower is away while records are sent, and comes back while others are."""
    topic = "catch-up"
    records = max(session.scale.missed_bytes // VALUE_BYTES, 20)
    with one.connect() as connection:
        connection.create_topic(topic)
    session.say("cluster: a follower that was away")
    produced = _sent(session, one.servers, topic, records, [one.pid])
    three.create_topics([topic], partitions=1)
    three.wait_until_in_sync(topic)
    (leader,) = three.leaders(topic, 1)
    away = next(each for each in three.ids if each != leader)
    three.stop(away)
    _sent(session, three.servers, topic, records, three.pids)
    served = Work(three.servers, topic, max(records // 8, 20), value_bytes=VALUE_BYTES, acks="all")
    with ThreadPoolExecutor(1) as thread:
        three.start(away)
        began_s = time.perf_counter()
        serving = thread.submit(run_contestant, session, "streams.send_many", served)
        three.wait_until_in_sync(topic)
        wall_s = time.perf_counter() - began_s
        serving.result()
    caught_up = records * VALUE_BYTES / 1e6 / wall_s
    missed = f"{records * VALUE_BYTES / 1e6:.0f} MB"
    yield Fact(
        GROUP,
        "A follower that was away, from its start until the ISR has it",
        "s",
        Spread.of([wall_s]),
        None,
        f"{missed} missed; a producer sends at full speed with acks=all meanwhile",
    )
    yield Fact(
        GROUP,
        "Produce rate of one broker / rate of the follower",
        RATIO_UNIT,
        Spread.of([produced.per_wall_s / caught_up]),
        1 / CATCH_UP_TARGET,
        f"{produced.per_wall_s:.0f} MB/s and {caught_up:.0f} MB/s",
    )
