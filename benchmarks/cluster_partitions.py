"""Many partitions: on three brokers with three replicas each, and on one broker."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.broker import running_broker
from benchmarks.cluster_failover import GROUP
from benchmarks.idle_connections import ack_p99_ms
from benchmarks.processes import process_cpu_s, resident_bytes
from benchmarks.results import Fact, Row, grouped
from benchmarks.running_cluster import BROKERS, RunningCluster, running_cluster
from benchmarks.samples import Spread
from benchmarks.session import Session

PARTITIONS = 3
TOPICS_PER_REQUEST = 100
IDLE_CPU_PERCENT = 3.0
SETTLE_S = 3.0
"""Until the work that creation leaves behind is done: flushes, checkpoints, a snapshot."""


def run(session: Session) -> Iterator[Row]:
    """What topics cost in a cluster, then what partitions cost one broker."""
    with running_cluster(session, "cluster-partitions") as cluster:
        yield from _replicated(session, cluster)
    yield from _alone(session)


def _replicated(session: Session, cluster: RunningCluster) -> Iterator[Row]:
    count = session.scale.cluster_topics
    names = [f"topic-{number}" for number in range(count)]
    shown = f"{grouped(count)} topics of {PARTITIONS} partitions, replication factor 3"
    memory = cluster.resident_bytes()
    session.say(f"cluster: {shown}")
    began_s = time.perf_counter()
    for first in range(0, count, TOPICS_PER_REQUEST):
        cluster.create_topics(names[first : first + TOPICS_PER_REQUEST], partitions=PARTITIONS)
    created_s = time.perf_counter() - began_s
    cluster.wait_until_in_sync()
    in_sync_s = time.perf_counter() - began_s
    replicas = count * PARTITIONS * BROKERS
    cost = (cluster.resident_bytes() - memory) / replicas / 1024
    yield Fact(
        GROUP,
        "Create topics, and all their replicas in sync",
        "s",
        Spread.of([in_sync_s]),
        None,
        f"{shown}, {TOPICS_PER_REQUEST} in a request: {count / created_s:.0f} topics/s",
    )
    yield Fact(GROUP, "Memory of a replica", "KiB", Spread.of([cost]), None, "all of them empty")
    yield _idle_cpu(session, cluster, shown)
    session.say("cluster: restart with many partitions")
    began_s = time.perf_counter()
    cluster.stop(cluster.ids[0])
    stopped_s = time.perf_counter() - began_s
    began_s = time.perf_counter()
    cluster.start(cluster.ids[0])
    started_s = time.perf_counter() - began_s
    cluster.wait_until_in_sync()
    in_sync_s = time.perf_counter() - began_s
    yield Fact(GROUP, "Orderly stop of a broker with these topics", "s", Spread.of([stopped_s]))
    yield Fact(
        GROUP,
        "Start of a broker with these topics, until it is in every ISR",
        "s",
        Spread.of([in_sync_s]),
        None,
        f"in service after {started_s:.1f} s",
    )
    for broker_id in cluster.ids:
        cluster.kill(broker_id)
    began_s = time.perf_counter()
    cluster.start(*cluster.ids)
    cluster.wait_until_in_sync()
    yield Fact(
        GROUP,
        "Start of all brokers after kill -9, until all replicas are in sync",
        "s",
        Spread.of([time.perf_counter() - began_s]),
    )


def _idle_cpu(session: Session, cluster: RunningCluster, shown: str) -> Row:
    time.sleep(min(SETTLE_S, session.scale.idle_s))
    before_s = cluster.cpu_s()
    time.sleep(session.scale.idle_s)
    used_s = [after - before for before, after in zip(before_s, cluster.cpu_s(), strict=True)]
    return Fact(
        GROUP,
        "Idle CPU of each broker",
        "% of a CPU",
        Spread.of([used / session.scale.idle_s * 100 for used in used_s]),
        IDLE_CPU_PERCENT,
        f"{shown}, over {session.scale.idle_s:g} s",
    )


def _alone(session: Session) -> Iterator[Row]:
    """As many partitions on one broker as it takes by default."""
    count = session.scale.alone_partitions
    shown = f"{grouped(count)} partitions on one broker"
    session.say(f"cluster: {shown}")
    with running_broker(session, "cluster-alone") as broker:
        with broker.connect() as connection:
            memory = resident_bytes(broker.pid)
            began_s = time.perf_counter()
            for first in range(0, count, PARTITIONS):
                partitions = min(PARTITIONS, count - first)
                connection.create_topic(f"topic-{first}", partitions=partitions)
            created_s = time.perf_counter() - began_s
        cost = (resident_bytes(broker.pid) - memory) / count / 1024
        time.sleep(min(SETTLE_S, session.scale.idle_s))
        before_s = process_cpu_s(broker.pid)
        time.sleep(session.scale.idle_s)
        idle = (process_cpu_s(broker.pid) - before_s) / session.scale.idle_s * 100
        p99_ms = ack_p99_ms(session, broker, "topic-0")
    yield Fact(
        GROUP,
        "Create topics, one in a request",
        "s",
        Spread.of([created_s]),
        None,
        f"{shown}, {PARTITIONS} in a topic: {count / created_s:.0f} partitions/s",
    )
    yield Fact(GROUP, "Memory of a partition on one broker", "KiB", Spread.of([cost]))
    yield Fact(GROUP, f"Idle CPU, {shown}", "% of a CPU", Spread.of([idle]))
    yield Fact(GROUP, f"p99 of an ack, {shown}", "ms", Spread.of([p99_ms]), None, "acks=1, fsync")
    with running_broker(session, "cluster-alone") as broker:
        yield Fact(GROUP, f"Start after an orderly stop, {shown}", "s", Spread.of([broker.ready_s]))
