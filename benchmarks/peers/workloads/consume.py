"""Records from a server to consumers, out of the page cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from benchmarks.peers.arena import Arena, Entry, Measured, costs
from benchmarks.peers.contestant import Contestant, Way
from benchmarks.peers.crowd import Client, run_together
from benchmarks.peers.rows import Row
from benchmarks.peers.scale import Case
from benchmarks.peers.task import Task
from benchmarks.peers.workloads.produce import is_able

NAME = "consume"
HEADING = "Consume"


def run(arena: Arena) -> Iterator[Row]:
    """All ways in the base cases, and the main ways in the others; acks do not matter here."""
    for case in arena.base_cases:
        if case.acks == "1":
            yield from _case(arena, case, is_base=True)
    for case in arena.side_cases:
        if case.acks == "1":
            yield from _case(arena, case, is_base=False)


def _case(arena: Arena, case: Case, *, is_base: bool) -> Iterator[Row]:
    entries = []
    with ExitStack() as stack:
        for contestant in arena.contestants:
            ways = [way for way in contestant.readers if is_base or way.main]
            if not is_able(contestant, case):
                continue
            durability = contestant.writers[0].durability
            topic = stack.enter_context(
                arena.topic(contestant, partitions=case.partitions, durability=durability)
            )
            arena.session.say(f"{NAME}, {case.title}: filling {contestant.name}")
            size = partial(arena.scale.records, case.value_bytes, is_base=is_base)
            records = max(size(way.share) for way in ways)
            try:
                filled = arena.fill(contestant, topic, case, records)
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                arena.skip(f"{NAME}, {case.title}: {contestant.name}", reason, failed=True)
                continue
            for way in ways:
                count = min(filled, size(way.share))
                runs = partial(consume_round, arena, contestant, way, case, topic, count)
                entries.append(Entry(contestant, way, runs))
        scale = arena.scale
        rounds, warm_ups = (scale.rounds, scale.warm_ups) if is_base else (scale.side_rounds, 0)
        yield from arena.contest(NAME, case.title, entries, rounds, warm_ups)


def consume_round(
    arena: Arena, contestant: Contestant, way: Way, case: Case, topic: str, records: int
) -> Measured:
    """One round; clients share the partitions evenly. Each counts its records and their bytes."""
    clients = []
    for number in range(case.clients):
        mine = range(number, case.partitions, case.clients)
        count = records // case.partitions * len(mine)
        task = Task(
            contestant.servers,
            topic,
            way.method,
            mine,
            count,
            value_bytes=case.value_bytes,
        )
        if count:
            clients.append(Client(way.client, "consume", task))
    outcome = run_together(arena.session, contestant, clients)
    return Measured(costs(outcome), outcome.records)
