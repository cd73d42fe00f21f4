"""The same records to 1, 4 and 16 consumers at once, each of which reads all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from benchmarks.peers.arena import Arena, Entry, Measured, costs
from benchmarks.peers.contestant import Contestant, Way
from benchmarks.peers.crowd import Client, run_together
from benchmarks.peers.rows import Row
from benchmarks.peers.scale import KIB, Case
from benchmarks.peers.task import Task

NAME = "fan-out"
HEADING = "Fan-out"
CASE = Case(KIB)
SHARE = 4


def run(arena: Arena) -> Iterator[Row]:
    """The main ways; the rate is that of all consumers together."""
    filled: dict[str, tuple[str, int]] = {}
    with ExitStack() as stack:
        for contestant in arena.contestants:
            durability = contestant.writers[0].durability
            topic = stack.enter_context(arena.topic(contestant, durability=durability))
            way = _reader(contestant)
            # Sixteen consumers read as much as a few rounds of one.
            records = arena.scale.records(CASE.value_bytes, max(way.share, SHARE))
            filled[contestant.name] = topic, arena.fill(contestant, topic, CASE, records)
        for consumers in arena.scale.fan_outs:
            entries = [
                Entry(one, _reader(one), partial(_round, arena, one, consumers, *filled[one.name]))
                for one in arena.contestants
            ]
            title = f"1 KiB, {consumers} consumer{'s' * (consumers > 1)}"
            yield from arena.contest(NAME, title, entries, max(arena.scale.side_rounds, 1))


def _reader(contestant: Contestant) -> Way:
    return next(way for way in contestant.readers if way.main)


def _round(
    arena: Arena, contestant: Contestant, consumers: int, topic: str, records: int
) -> Measured:
    way = _reader(contestant)
    task = Task(
        contestant.servers, topic, way.method, records=records, value_bytes=CASE.value_bytes
    )
    clients = [Client(way.client, "consume", task)] * consumers
    outcome = run_together(arena.session, contestant, clients)
    return Measured(costs(outcome), outcome.records)
