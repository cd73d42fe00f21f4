"""Records that are on the disk and not in the page cache of this machine.

The host of a virtual machine may still have them in its memory. Redis has all records in its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from benchmarks.peers.arena import Arena, Entry, Measured
from benchmarks.peers.contestant import Contestant, Way
from benchmarks.peers.rows import Row
from benchmarks.peers.scale import KIB, Case
from benchmarks.peers.workloads.consume import consume_round

NAME = "cold reads"
HEADING = "Cold reads"
CASE = Case(KIB)


def run(arena: Arena) -> Iterator[Row]:
    """The main ways. Before each round the kernel forgets the server's files."""
    entries = []
    with ExitStack() as stack:
        for contestant in arena.contestants:
            if not contestant.reads_from_disk:
                arena.skip(f"{NAME}: {contestant.name}", "it holds all records in memory")
                continue
            durability = contestant.writers[0].durability
            topic = stack.enter_context(arena.topic(contestant, durability=durability))
            way = next(way for way in contestant.readers if way.main)
            records = arena.scale.records(CASE.value_bytes, way.share)
            filled = arena.fill(contestant, topic, CASE, records)
            runs = partial(_round, arena, contestant, way, topic, filled)
            entries.append(Entry(contestant, way, runs))
        rounds = max(arena.scale.side_rounds, 1)
        yield from arena.contest(NAME, "1 KiB, from the disk", entries, rounds)


def _round(arena: Arena, contestant: Contestant, way: Way, topic: str, records: int) -> Measured:
    contestant.drop_cached_pages()
    return consume_round(arena, contestant, way, CASE, topic, records)
