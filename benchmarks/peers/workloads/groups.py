"""A member that joins a group: from its first call to its first record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from benchmarks.peers.arena import Arena, Entry, Measured
from benchmarks.peers.contestant import Contestant, Way
from benchmarks.peers.crowd import Client, Member
from benchmarks.peers.rows import Row
from benchmarks.peers.scale import Case
from benchmarks.peers.task import Task

NAME = "groups"
HEADING = "Consumer groups"


def run(arena: Arena) -> Iterator[Row]:
    """Servers whose groups share partitions; those of the others have nothing to rebalance."""
    case = Case(partitions=arena.scale.group_partitions)
    entries = []
    with ExitStack() as stack:
        for contestant in arena.contestants:
            if not contestant.has_groups:
                arena.skip(f"{NAME}: {contestant.name}", "its groups do not share partitions")
                continue
            way = next(way for way in contestant.paced if way.main)
            durability = contestant.writers[0].durability
            topic = stack.enter_context(
                arena.topic(contestant, partitions=case.partitions, durability=durability)
            )
            arena.fill(contestant, topic, case, 100 * case.partitions)
            runs = partial(_round, arena, contestant, way, topic)
            entries.append(Entry(contestant, way, runs))
        title = f"{case.partitions} partitions, {arena.scale.group_members} members and one more"
        yield from arena.contest(NAME, title, entries, max(arena.scale.side_rounds, 1))


def _round(arena: Arena, contestant: Contestant, way: Way, topic: str) -> Measured:
    """The first member joins an empty group, others follow, and the last one takes its share."""
    members = arena.scale.group_members
    group = arena.new_name()
    task = Task(contestant.servers, topic, group=group)
    joined_s = []
    with ExitStack() as stack:
        for _ in range(members + 1):
            member = Member(arena.session, Client(way.client, "join", task), stack)
            member.until_ready()
            member.let_go()
            report = member.report()
            joined_s.append(report.ended - report.began)
    figures = {"first member s": joined_s[0], "one more member s": joined_s[-1]}
    return Measured(figures, len(joined_s))
