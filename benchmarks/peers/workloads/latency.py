"""From the moment a record is due to the consumer that has it: an open loop, see `schedule`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from statistics import median

from benchmarks.peers.arena import Arena, Entry, Measured
from benchmarks.peers.contestant import Contestant, Way
from benchmarks.peers.crowd import Client, run_together
from benchmarks.peers.rows import Row
from benchmarks.peers.task import Report, Task
from benchmarks.samples import percentile

NAME = "latency"
HEADING = "Latency from producer to consumer"
RATE = 1_000
STEADY = "1,000 records/s of 100 B, linger 0"
PEAK = "As fast as it can, producer and consumer together, 100 B"
LOADS = (0.1, 0.5, 0.8)
WARM_UP = 500
LOADED_S = 3.0
LINGER_MS = 5


def run(arena: Arena) -> Iterator[Row]:
    """A steady rate for all ways; the peak of the main ways; and shares of each one's peak."""
    entries = [
        Entry(contestant, way, partial(paced_round, arena, contestant, way))
        for contestant in arena.contestants
        for way in contestant.paced
    ]
    scale = arena.scale
    yield from arena.contest(NAME, STEADY, entries, scale.rounds, scale.warm_ups)
    loaded = [entry for entry in entries if entry.way.main]
    floods = [
        Entry(one.contestant, one.way, partial(flood_round, arena, one.contestant, one.way))
        for one in loaded
    ]
    rounds = max(scale.side_rounds, 1)
    peaks = list(arena.contest(NAME, PEAK, floods, rounds))
    yield from peaks
    rates = {row.way: median(row.figures["records/s"]) for row in peaks}
    for load in LOADS if scale.side_rounds else ():
        entries = [
            Entry(
                one.contestant,
                one.way,
                partial(paced_round, arena, one.contestant, one.way, rates[one.way.name] * load),
            )
            for one in loaded
            if one.way.name in rates
        ]
        yield from arena.contest(NAME, loaded_title(load), entries, rounds)


def loaded_title(load: float) -> str:
    """The case of a share of the peak."""
    return f"{load:.0%} of its own peak, 100 B, linger {LINGER_MS} ms"


def paced_round(
    arena: Arena, contestant: Contestant, way: Way, rate: float | None = None
) -> Measured:
    """One round at `rate`, or at the steady one, which waits for no other records."""
    records = arena.scale.paced_records if rate is None else int(rate * LOADED_S)
    warm_up = WARM_UP if rate is None else records // 5
    task = Task(
        contestant.servers,
        "",
        records=records,
        warm_up=warm_up,
        rate=rate or RATE,
        linger_ms=LINGER_MS if rate else 0,
    )
    sent, received, server_cpu_s = _both(arena, contestant, way, task)
    latencies_ms, late_ms = sorted(received.latencies_ms), sorted(sent.latencies_ms)
    figures = {
        f"p{share * 100:g} ms": percentile(latencies_ms, share) for share in (0.5, 0.9, 0.99, 0.999)
    }
    figures |= {
        "p99 of the delay to send ms": percentile(late_ms, 0.99),
        "server CPU µs/record": server_cpu_s / (records + warm_up) * 1e6,
        "client CPU µs/record": (sent.cpu_s + received.cpu_s) / (records + warm_up) * 1e6,
        "records/s": task.rate,
    }
    return Measured(figures, records + warm_up)


def flood_round(arena: Arena, contestant: Contestant, way: Way) -> Measured:
    """One round without a schedule: the rate at which records arrive."""
    shares = {writer.client: writer.share for writer in contestant.writers}
    records = arena.scale.records(100, 2 * shares[way.client])
    task = Task(contestant.servers, "", records=records, warm_up=records // 5)
    _, received, server_cpu_s = _both(arena, contestant, way, task)
    return Measured(
        {
            "records/s": records / (received.ended - received.began),
            "server CPU µs/record": server_cpu_s / (records + task.warm_up) * 1e6,
        },
        records + task.warm_up,
    )


def _both(
    arena: Arena, contestant: Contestant, way: Way, task: Task
) -> tuple[Report, Report, float]:
    """The reports of the producer and of the consumer, and the server's CPU seconds."""
    with arena.topic(contestant, durability=way.durability) as topic:
        task = replace(task, topic=topic, method=way.method)
        clients = [Client(way.client, verb, task) for verb in ("receive", "send")]
        outcome = run_together(arena.session, contestant, clients)
    received, sent = outcome.reports
    return sent, received, outcome.server_cpu_s
