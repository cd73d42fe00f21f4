"""The harness of the peers with millrace alone, at the smallest scale."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.peers import command
from benchmarks.peers.arena import Arena, Entry, Measured, Mismatch
from benchmarks.peers.clients.client import Client, Taken
from benchmarks.peers.clients.schedule import STAMP, Corrupt, receive_paced, send_paced
from benchmarks.peers.contestant import Contestant, Unavailable, Way
from benchmarks.peers.ours import Millrace
from benchmarks.peers.page import JSON_NAME, PAGE_NAME
from benchmarks.peers.redis import Redis
from benchmarks.peers.rows import Run
from benchmarks.peers.scale import TINY, Case, Matrix
from benchmarks.peers.task import Report, Task
from benchmarks.session import TINY as SESSION_TINY
from benchmarks.session import open_session

WORKLOADS = ("produce", "consume", "latency", "fan-out", "cold reads", "disk", "lifecycle")


@pytest.fixture
def arena(tmp_path: Path) -> Iterator[Arena]:
    with open_session(SESSION_TINY, tmp_path) as session:
        contestant = Millrace(session, session.directory / "millrace")
        contestant.start()
        try:
            yield Arena(session, TINY, Matrix(), [contestant])
        finally:
            contestant.stop()


def _entry(arena: Arena, name: str, run: Callable[[], Measured]) -> Entry:
    return Entry(arena.contestants[0], Way(name, "native", "send"), run)


@pytest.mark.long
def test_a_run_measures_a_real_broker_and_writes_the_page(tmp_path: Path) -> None:
    only = [argument for name in WORKLOADS for argument in ("--workload", name)]
    arguments = ["--peers", "--scale", "tiny", "--peer", "millrace", "--out", str(tmp_path)]
    assert main([*arguments, *only]) == 0
    run = Run.of_json((tmp_path / JSON_NAME).read_text())
    assert run.skipped == []
    assert {row.workload for row in run.rows} == set(WORKLOADS)
    for row in run.rows:
        assert row.figures
        assert row.checked > 0
        assert all(min(values) >= 0 for values in row.figures.values())
    page = (tmp_path / PAGE_NAME).read_text()
    assert str(tmp_path) not in page
    assert "durability=fsync" in page


def test_a_run_is_a_full_one_unless_it_is_told_otherwise() -> None:
    parser = command.parser()
    assert parser.parse_args([]).scale == "full"
    assert parser.parse_args(["--quick"]).scale == "quick"


def test_a_peer_that_cannot_be_had_is_skipped_with_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(self: Contestant) -> str:
        raise Unavailable("no such server here")

    monkeypatch.setattr(Redis, "version", none)
    arguments = ["--scale", "tiny", "--workload", "fan-out", "--peer", "redis"]
    assert command.main([*arguments, "--out", str(tmp_path)]) == 0
    run = Run.of_json((tmp_path / JSON_NAME).read_text())
    assert [(one.what, one.reason) for one in run.skipped] == [
        ("Redis Streams", "no such server here")
    ]
    assert run.rows == []


def test_a_topic_with_fewer_or_other_records_is_a_mismatch(arena: Arena) -> None:
    (millrace,) = arena.contestants
    case = Case()
    with arena.topic(millrace, durability="page cache") as topic:
        filled = arena.fill(millrace, topic, case, 100)
        with pytest.raises(Mismatch, match="checksum of 100 records"):
            arena.verify(millrace, topic, case, filled, 1)
        with pytest.raises(Mismatch, match="100 records are there where 50 were acked"):
            arena.verify(millrace, topic, case, 50, None)


def test_the_first_one_of_a_round_changes_and_a_row_has_all_rounds(arena: Arena) -> None:
    order: list[str] = []

    def run(name: str) -> Measured:
        order.append(name)
        return Measured({"records/s": float(len(order))}, 10)

    entries = [_entry(arena, name, lambda name=name: run(name)) for name in "abc"]  # type: ignore[misc]
    rows = list(arena.contest("produce", "case", entries, 3))
    assert "".join(order) == "abcbcacab"
    assert [row.way for row in rows] == ["a", "b", "c"]
    assert rows[0].figures == {"records/s": [1.0, 6.0, 8.0]}
    assert rows[0].checked == 30


def test_a_way_that_fails_leaves_and_the_others_go_on(arena: Arena) -> None:
    def fails() -> Measured:
        raise Mismatch("9 records are there where 10 were acked")

    def works() -> Measured:
        return Measured({"records/s": 1.0}, 1)

    entries = [_entry(arena, "bad", fails), _entry(arena, "good", works)]
    (row,) = arena.contest("produce", "case", entries, 2)
    assert (row.way, row.figures) == ("good", {"records/s": [1.0, 1.0]})
    (skipped,) = arena.skipped
    assert skipped.failed
    assert "9 records are there" in skipped.reason


def test_a_report_is_read_as_it_was_printed() -> None:
    task = Task("127.0.0.1:1", "t", partitions=range(3), records=5)
    assert Task.from_json(task.to_json()).partitions == [0, 1, 2]
    assert (
        Report.from_json('{"records":1,"value_bytes":2,"began":3,"ended":4,"cpu_s":5}').ended == 4
    )


class Wire(Client):
    """A client whose records arrive as they are sent, or as a test changes them."""

    def __init__(self, task: Task, change: Callable[[bytes], Sequence[bytes]]) -> None:
        super().__init__(task)
        self.sent: list[bytes] = []
        self._change = change
        self._arrived: asyncio.Queue[Sequence[bytes]] = asyncio.Queue()

    async def open_producer(self) -> None: ...

    async def open_consumer(self) -> None: ...

    async def close(self) -> None: ...

    async def flush(self) -> None: ...

    async def produce(
        self, values: Sequence[bytes], count: int, partition: int | None = None
    ) -> float:
        raise NotImplementedError

    async def consume(self, least: int) -> Taken:
        raise NotImplementedError

    async def send(self, values: Sequence[bytes]) -> None:
        for value in values:
            self.sent.append(value)
            self._arrived.put_nowait(self._change(value))

    async def receive(self) -> AsyncIterator[Sequence[bytes]]:
        while True:
            yield await self._arrived.get()


PACED = Task("", "", records=40, warm_up=10, rate=10_000.0)


async def test_records_are_due_at_even_intervals_and_sent_late_rather_than_skipped() -> None:
    wire = Wire(PACED, lambda value: [value])
    before_ns = time.monotonic_ns()
    late_ms = await send_paced(wire, PACED)
    stamps = [STAMP.unpack_from(value) for value in wire.sent]
    assert [number for number, _ in stamps] == list(range(50))
    dues = [due - stamps[0][1] for _, due in stamps]
    assert dues == [number * 100_000 for number in range(50)]
    assert stamps[0][1] > before_ns
    assert len(late_ms) == PACED.records
    assert min(late_ms) >= 0
    received = await receive_paced(wire, PACED)
    assert len(received.latencies_ms) == PACED.records
    assert min(received.latencies_ms) > 0


@pytest.mark.parametrize(
    "change", [lambda value: [value, value], lambda value: [value[:-1] + b"!"]]
)
async def test_a_record_that_comes_twice_or_damaged_is_corrupt(
    change: Callable[[bytes], Sequence[bytes]],
) -> None:
    wire = Wire(PACED, change)
    await send_paced(wire, PACED)
    with pytest.raises(Corrupt, match="came twice, or is damaged"):
        await receive_paced(wire, PACED)
