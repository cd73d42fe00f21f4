"""Blocks on the disk for each byte of values, with eight busy partitions."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from functools import partial

from benchmarks.peers.arena import Arena, Entry, Measured
from benchmarks.peers.contestant import Contestant, Way
from benchmarks.peers.crowd import Client, run_together
from benchmarks.peers.rows import Row
from benchmarks.peers.scale import KIB, Case
from benchmarks.peers.task import Task

NAME = "disk"
HEADING = "Disk"
CASE = Case(KIB, partitions=8, clients=8)
TITLE = "1 KiB, 8 busy partitions"
AT_REST = "at rest, blocks per byte of values"
UNDER_LOAD = "under load, blocks per byte of values"
SAMPLE_S = 0.1


def run(arena: Arena) -> Iterator[Row]:
    """The main ways, once: the figure does not depend on what else the machine does."""
    entries = []
    for contestant in arena.contestants:
        way = next(way for way in contestant.writers if way.main)
        entries.append(Entry(contestant, way, partial(_round, arena, contestant, way)))
    yield from arena.contest(NAME, TITLE, entries, 1)


def _round(arena: Arena, contestant: Contestant, way: Way) -> Measured:
    """The highest number of blocks under load, and that after a pause, of a server of its own."""
    records = max(arena.scale.disk_bytes // CASE.value_bytes // CASE.clients // way.share, 64)
    with arena.fresh(contestant) as server:
        server.start()
        server.create_topic("disk", partitions=CASE.partitions, durability=way.durability)
        before = server.disk_bytes()
        clients = [
            Client(
                way.client,
                "fill",
                Task(
                    server.servers,
                    "disk",
                    way.method,
                    [partition],
                    records,
                    value_bytes=CASE.value_bytes,
                ),
            )
            for partition in range(CASE.clients)
        ]
        highest = before
        loaded = threading.Event()

        def watch() -> None:
            nonlocal highest
            while not loaded.wait(SAMPLE_S):
                highest = max(highest, server.disk_bytes())

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            outcome = run_together(arena.session, server, clients)
        finally:
            loaded.set()
            watching.join()
        highest = max(highest, server.disk_bytes())
        time.sleep(arena.scale.idle_s)
        os.sync()
        figures = {
            AT_REST: (server.disk_bytes() - before) / outcome.value_bytes,
            UNDER_LOAD: (highest - before) / outcome.value_bytes,
        }
        return Measured(figures, outcome.records)
