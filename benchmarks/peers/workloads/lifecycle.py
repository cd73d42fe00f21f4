"""A server from its start: to the first ack, its memory, its idle CPU, and after kill -9."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from benchmarks.peers.arena import MIB, Arena, Entry, Measured
from benchmarks.peers.contestant import Contestant
from benchmarks.peers.crowd import Client, Member
from benchmarks.peers.rows import Row
from benchmarks.peers.scale import KIB, Case
from benchmarks.peers.task import Task
from benchmarks.peers.values import expected_checksum

NAME = "lifecycle"
HEADING = "Start, memory, idle CPU, and kill -9"
FIRST_ACK = "start to first ack s"
RESIDENT = "resident MiB"
IDLE = "idle CPU %"
TOPIC = "life"
SETTLE_S = 1.0


def run(arena: Arena) -> Iterator[Row]:
    """Each server for itself, with a topic of 1, 100 and 1,000 partitions.

    It is killed after `restart_bytes` of values, and all of them have to be there again.
    """
    for partitions in arena.scale.many_partitions:
        case = Case(KIB, partitions)
        entries = []
        for contestant in arena.contestants:
            way = next(way for way in contestant.writers if way.main)
            entries.append(Entry(contestant, way, partial(_round, arena, contestant, case)))
        yield from arena.contest(NAME, title(partitions), entries, arena.scale.starts)


def title(partitions: int) -> str:
    """The case of so many partitions."""
    return f"{partitions:,} partition{'s' * (partitions > 1)}"


def _round(arena: Arena, contestant: Contestant, case: Case) -> Measured:
    figures: dict[str, float] = {}
    with arena.fresh(contestant) as server:
        server.start()
        began = time.monotonic()
        durability = server.writers[0].durability
        server.create_topic(TOPIC, partitions=case.partitions, durability=durability)
        figures["create the topic s"] = time.monotonic() - began
        server.stop()
        figures[FIRST_ACK] = _first_ack_s(arena, server, case)
        time.sleep(min(SETTLE_S, arena.scale.idle_s))
        before_s = server.cpu_s()
        time.sleep(arena.scale.idle_s)
        figures[IDLE] = (server.cpu_s() - before_s) / arena.scale.idle_s * 100
        figures[RESIDENT] = server.resident_bytes() / MIB
        filled = arena.fill(
            server, TOPIC, case, arena.scale.restart_bytes // case.value_bytes, is_verified=False
        )
        figures["resident after the load MiB"] = server.resident_bytes() / MIB
        server.kill()
        figures["start after kill -9 to first ack s"] = _first_ack_s(arena, server, case)
        each = filled // case.partitions
        due = case.partitions * expected_checksum(case.value_bytes, each)
        due += 2 * expected_checksum(case.value_bytes, 1)
        arena.verify(server, TOPIC, case, filled + 2, due)
        return Measured(figures, filled + 2)


def _first_ack_s(arena: Arena, server: Contestant, case: Case) -> float:
    """From the start of the server's process to an ack; the producer's is ready before."""
    way = next(way for way in server.writers if way.main)
    # One record in one partition, whatever the contestant's way to choose it.
    task = Task(server.servers, TOPIC, way.method, records=1, value_bytes=case.value_bytes)
    with ExitStack() as stack:
        producer = Member(arena.session, Client(way.client, "first_ack", task), stack)
        producer.until_ready()
        began = time.monotonic()
        server.spawn()
        producer.let_go()
        return producer.report().ended - began
