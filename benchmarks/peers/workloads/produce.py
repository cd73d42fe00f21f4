"""Records from producers to a server, until all are acked."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.peers.arena import WARM_UP_SHARE, Arena, Entry, Measured, costs
from benchmarks.peers.contestant import Contestant, Way
from benchmarks.peers.crowd import Client, run_together
from benchmarks.peers.rows import Row
from benchmarks.peers.scale import Case
from benchmarks.peers.task import Task
from benchmarks.peers.values import expected_checksum

NAME = "produce"
HEADING = "Produce"


def run(arena: Arena) -> Iterator[Row]:
    """All ways in the base cases, and the main ways in the others."""
    scale = arena.scale
    for case in arena.base_cases:
        entries = _entries(arena, case, is_base=True)
        yield from arena.contest(NAME, case.title, entries, scale.rounds, scale.warm_ups)
    for case in arena.side_cases:
        entries = [entry for entry in _entries(arena, case, is_base=False) if entry.way.main]
        yield from arena.contest(NAME, case.title, entries, scale.side_rounds)


def _entries(arena: Arena, case: Case, *, is_base: bool) -> list[Entry]:
    size = partial(arena.scale.records, case.value_bytes, is_base=is_base)
    return [
        Entry(
            contestant, way, partial(produce_round, arena, contestant, way, case, size(way.share))
        )
        for contestant in arena.contestants
        if is_able(contestant, case)
        for way in contestant.writers
    ]


def is_able(contestant: Contestant, case: Case) -> bool:
    """Whether a contestant has what a case asks for."""
    return (contestant.compresses or case.compression == "none") and (
        contestant.has_acks or case.acks == "1"
    )


def produce_round(
    arena: Arena, contestant: Contestant, way: Way, case: Case, size: int
) -> Measured:
    """One round of `size` records in a new topic, which is read back and compared afterwards."""
    records = size // case.clients
    warm_up = max(records // WARM_UP_SHARE, 1) if way.checks_values else 0
    with arena.topic(contestant, partitions=case.partitions, durability=way.durability) as topic:
        task = Task(
            contestant.servers,
            topic,
            way.method,
            range(case.partitions),
            records,
            warm_up,
            value_bytes=case.value_bytes,
            compression=case.compression,
            acks=case.acks,
        )
        arena.session.warm_pages(records * case.clients * case.value_bytes)
        clients = [Client(way.client, "produce", task)] * case.clients
        outcome = run_together(arena.session, contestant, clients)
        count = case.clients * (warm_up + records)
        sums = [expected_checksum(case.value_bytes, part) for part in (warm_up, records)]
        due = case.clients * sum(sums) if way.checks_values else None
        arena.verify(contestant, topic, case, count, due)
    return Measured(costs(outcome), count)
