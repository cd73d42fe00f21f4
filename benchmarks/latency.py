"""From a producer's stamp to the consumer that has the record, at a steady rate.

Producer, broker and consumer are three processes on one machine and read the same clock. The stamp
is the moment at which the schedule wants the record sent, not the moment at which it was sent: a
stall of the producer counts for every record that it delays.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from benchmarks.broker import RunningBroker, running_broker
from benchmarks.paced import MEASURING, READY, RECEIVED, SENT, PacedWork
from benchmarks.processes import (
    ProcessFailed,
    child,
    process_cpu_s,
    python_module,
    read_line,
)
from benchmarks.results import Fact, Row
from benchmarks.samples import Spread, percentile
from benchmarks.session import Session

GROUP = "latency"
RATE = 1_000
WARM_UP = RATE // 2
VALUE_BYTES = 100


@dataclass(frozen=True, slots=True)
class Round:
    """What the records of one round took; CPU times are those of one record, in µs."""

    latency_ms: Sequence[float]
    late_ms: Sequence[float]
    broker_us: float
    producer_us: float
    consumer_us: float


def run(session: Session) -> Iterator[Row]:
    """Latency and CPU time per record, for each durability."""
    with running_broker(session, "latency-data") as broker:
        for durability in ("os", "fsync"):
            rounds = []
            for number in range(session.scale.rounds):
                session.say(f"latency: durability={durability}, round {number + 1}")
                rounds.append(_round(session, broker, durability, number))
            yield from _facts(durability, rounds)


def _round(session: Session, broker: RunningBroker, durability: str, number: int) -> Round:
    topic = f"latency-{durability}-{number}"
    with broker.connect() as connection:
        connection.create_topic(topic, durability=durability)
    return paced_round(session, broker.servers, [broker.pid], topic)


def paced_round(session: Session, servers: str, broker_pids: Sequence[int], topic: str) -> Round:
    """One round through an empty topic; the CPU time is that of all brokers together."""
    work = PacedWork(
        servers, topic, session.scale.paced_records, WARM_UP, RATE, VALUE_BYTES
    ).to_json()
    session.settle()
    with _client(session, "receive", work) as consumer:
        _expect(session, consumer, READY)
        with _client(session, "send", work) as producer:
            _expect(session, producer, MEASURING)
            clocks = ([*broker_pids], [producer.pid], [consumer.pid])
            before_s = [sum(map(process_cpu_s, pids)) for pids in clocks]
            _expect(session, producer, SENT)
            _expect(session, consumer, RECEIVED)
            after_s = [sum(map(process_cpu_s, pids)) for pids in clocks]
            late_ms = _report(session, producer)
            latency_ms = _report(session, consumer)
    cpu_us = [
        (after - before) / len(latency_ms) * 1e6
        for before, after in zip(before_s, after_s, strict=True)
    ]
    return Round(latency_ms, late_ms, *cpu_us)


def _client(
    session: Session, program: str, work: str
) -> AbstractContextManager[subprocess.Popen[str]]:
    command = python_module("benchmarks.paced", program, work)
    return child(command, log=session.log, environment=session.checkout.environment)


def _expect(session: Session, process: subprocess.Popen[str], due: str) -> None:
    found = read_line(process, session.log)
    if found != due:
        raise ProcessFailed(f"a client printed {found!r} where {due!r} was due")


def _report(session: Session, process: subprocess.Popen[str]) -> list[float]:
    """What a client measured, in ms and in ascending order."""
    assert process.stdin is not None
    process.stdin.write("report\n")
    process.stdin.flush()
    return sorted(ns / 1e6 for ns in json.loads(read_line(process, session.log)))


def _facts(durability: str, rounds: Sequence[Round]) -> list[Row]:
    checked = f"{sum(len(of.latency_ms) for of in rounds):,}".replace(",", " ")
    note = (
        f"{RATE} records/s of {VALUE_BYTES} bytes, linger_ms=0, acks=all; from the scheduled send "
        f"to the consumer; {checked} records checked"
    )
    setting = f"durability={durability}"

    def fact(title: str, unit: str, values: list[float], remark: str = "") -> Row:
        return Fact(GROUP, f"{title}, {setting}", unit, Spread.of(values), None, remark)

    return [
        fact("p50 end to end", "ms", [percentile(of.latency_ms, 0.5) for of in rounds], note),
        fact("p99 end to end", "ms", [percentile(of.latency_ms, 0.99) for of in rounds]),
        fact(
            "p99 of the producer's delay, a part of it",
            "ms",
            [percentile(of.late_ms, 0.99) for of in rounds],
            "from the scheduled send to the call of `send`",
        ),
        fact("Broker CPU per record", "µs", [of.broker_us for of in rounds]),
        fact("Producer CPU per record", "µs", [of.producer_us for of in rounds]),
        fact("Consumer CPU per record", "µs", [of.consumer_us for of in rounds]),
    ]
