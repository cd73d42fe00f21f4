"""Brokers of a cluster that end while an application goes on: killed, or stopped in order."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise

from benchmarks.cluster_load import READY, Seen, SteadyWork
from benchmarks.processes import ProcessFailed, child, python_module, read_line
from benchmarks.results import Fact, Row, grouped
from benchmarks.running_cluster import RunningCluster, running_cluster
from benchmarks.samples import Spread, percentile
from benchmarks.session import Session

GROUP = "cluster"
PARTITIONS = 6
INTERVAL_MS = 5
FAILOVER_LIMIT_S = 3.0
MOVE_LIMIT_MS = 200.0
NONE_LIMIT = 1.0
"""Of what must not happen: limits are exclusive."""
LOAD_NOTE = f"acks=all, one record of each of {PARTITIONS} partitions every {INTERVAL_MS} ms"


class Application:
    """The process of `cluster_load`."""

    def __init__(self, session: Session, process: subprocess.Popen[str], topic: str) -> None:
        self._session = session
        self._process = process
        self.topic = topic

    def first_ack_ns(self, partition: int, since_ns: int) -> int:
        """When the first record of a partition was acked that was sent after `since_ns`."""
        return int(self._exchange(f"after {partition} {since_ns}"))

    def seen(self) -> Seen:
        """Ends the application; returns what it has seen."""
        return Seen(**json.loads(self._exchange("report")))

    def _exchange(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return read_line(self._process, self._session.log)


def run(session: Session) -> Iterator[Row]:
    """What an application sees of kills, moves, and a rolling restart."""
    with running_cluster(session, "cluster-failover") as cluster:
        for topic, part in (("kills", _kills), ("moves", _moves)):
            cluster.create_topics([topic], partitions=PARTITIONS)
            cluster.wait_until_in_sync(topic)
            with _application(session, cluster, topic) as application:
                yield from part(session, cluster, application)


@contextlib.contextmanager
def _application(session: Session, cluster: RunningCluster, topic: str) -> Iterator[Application]:
    work = SteadyWork(cluster.servers, topic, PARTITIONS, INTERVAL_MS).to_json()
    command = python_module("benchmarks.cluster_load", work)
    with child(command, log=session.log, environment=session.checkout.environment) as process:
        if read_line(process, session.log) != READY:
            raise ProcessFailed("the application did not begin")
        yield Application(session, process, topic)


def _kills(session: Session, cluster: RunningCluster, application: Application) -> Iterator[Row]:
    """Kills leaders in turns, one that is the active controller and one that is not."""
    waits_s: dict[bool, list[float]] = {True: [], False: []}
    for number in range(session.scale.kills):
        victim, led, is_controller = _victim(
            cluster, application.topic, is_controller=number % 2 == 0
        )
        killed_ns = time.monotonic_ns()
        cluster.kill(victim)
        gone_ns = time.monotonic_ns()
        acked_ns = [application.first_ack_ns(partition, gone_ns) for partition in led]
        waits_s[is_controller] += [(ns - killed_ns) / 1e9 for ns in acked_ns]
        session.say(f"cluster: kill {number + 1}, {(max(acked_ns) - killed_ns) / 1e9:.2f} s")
        cluster.start(victim)
        cluster.wait_until_in_sync(application.topic)
    seen = application.seen()
    both = sorted(waits_s[True] + waits_s[False])
    note = f"{session.scale.kills} kills, {LOAD_NOTE}; {len(both)} partitions lost their leader"
    title = "kill -9 of a leader to the next ack of its partition"
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        limit = FAILOVER_LIMIT_S if name == "p99" else None
        value = Spread(percentile(both, share), both[0], both[-1])
        yield Fact(GROUP, f"{name}, {title}", "s", value, limit, note)
    for is_controller, name in ((True, "the active controller"), (False, "not the controller")):
        if waits_s[is_controller]:
            yield Fact(GROUP, f"{title}, {name}", "s", Spread.of(waits_s[is_controller]))
    yield from _losses("kills", seen)


def _victim(
    cluster: RunningCluster, topic: str, *, is_controller: bool
) -> tuple[int, Sequence[int], bool]:
    """A broker that leads partitions, these, and whether it is the active controller."""
    controller = cluster.controller()
    leaders = cluster.leaders(topic, PARTITIONS)
    ids = sorted(set(leaders), key=lambda each: (each == controller) != is_controller)
    led = [partition for partition, leader in enumerate(leaders) if leader == ids[0]]
    return ids[0], led, ids[0] == controller


def _moves(session: Session, cluster: RunningCluster, application: Application) -> Iterator[Row]:
    """Restarts all brokers one after the other, so that leaders move when they are asked to."""
    moves_ns: list[tuple[int, int, Sequence[int]]] = []
    began_ns = time.monotonic_ns()
    for _ in range(session.scale.rolling_restarts):
        for broker_id in cluster.ids:
            leaders = cluster.leaders(application.topic, PARTITIONS)
            led = [partition for partition, leader in enumerate(leaders) if leader == broker_id]
            stopped_ns = time.monotonic_ns()
            cluster.stop(broker_id)
            moves_ns.append((stopped_ns, time.monotonic_ns(), led))
            cluster.start(broker_id)
            cluster.wait_until_in_sync(application.topic)
            session.say(f"cluster: broker {broker_id} restarted")
    ended_ns = time.monotonic_ns()
    seen = application.seen()
    gaps_ms = [
        _longest_gap_ms(seen.acked_ns[partition], since_ns, until_ns)
        for since_ns, until_ns, led in moves_ns
        for partition in led
    ]
    longest_ms = [_longest_gap_ms(acked_ns, began_ns, ended_ns) for acked_ns in seen.acked_ns]
    yield Fact(
        GROUP,
        "Planned move: longest time between acks of a partition whose leader stops",
        "ms",
        Spread.of(gaps_ms),
        MOVE_LIMIT_MS,
        f"SIGTERM; {len(gaps_ms)} moves, {LOAD_NOTE}",
    )
    yield Fact(
        GROUP,
        "Rolling restart: longest time between acks of a partition",
        "ms",
        Spread.of([max(longest_ms)]),
        None,
        f"{len(moves_ns)} restarts, each when all replicas were in sync again",
    )
    yield from _losses("rolling restart", seen)


def _losses(title: str, seen: Seen) -> Iterator[Row]:
    count = f"{grouped(sum(map(len, seen.acked_ns)))} records acked"
    named = f"{count}; the first: {seen.errors[0]}" if seen.errors else count
    for name, value in (
        ("errors seen by the application", len(seen.errors)),
        ("acked records lost", seen.lost),
        ("records doubled", seen.doubled),
    ):
        yield Fact(
            GROUP,
            f"{title.capitalize()}: {name}",
            "records" if "records" in name else "errors",
            Spread.of([float(value)]),
            NONE_LIMIT,
            named if name.startswith("errors") else "",
        )


def _longest_gap_ms(acked_ns: Sequence[int], since_ns: int, until_ns: int) -> float:
    """The longest time between two acks of which the second is after `since_ns`, and the first
    before `until_ns`."""
    gaps = [b - a for a, b in pairwise(acked_ns) if b > since_ns and a < until_ns]
    return max(gaps, default=0) / 1e6
