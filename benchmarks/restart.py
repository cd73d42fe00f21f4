"""The start after kill -9: until the port responds, and until every partition is read again.

Owns the state that is started from: each partition was killed just short of its next checkpoint,
with batches in flight and default settings, so that as many bytes as ever must be looked through.
A start is slower only where as many batches as a checkpoint allows are small. Every
round begins with that same state, put back from a snapshot; nothing is appended in between.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.batches import LATEST, batch_of
from benchmarks.broker import RunningBroker, running_broker
from benchmarks.processes import process_cpu_s
from benchmarks.results import Fact, Row, Skipped
from benchmarks.samples import Spread
from benchmarks.session import MIB, Session
from benchmarks.wire import (
    BrokerConnection,
    UnexpectedResponse,
    fetch_frame,
    produce_frame,
    pump,
    read_response,
)
from millrace_protocol.api import ApiKey
from millrace_protocol.errors import ERROR_TRAITS, ErrorCode
from millrace_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest

GROUP = "restart"
FIRST_FETCH_S = 5.0
DATA = "restart-data"
TOPIC = "restart"
BATCH_BYTES = 64 << 10
CHECKPOINT_BATCHES = 32 * MIB // BATCH_BYTES
"""A partition writes a checkpoint when this many batches lie behind the last one."""
RUN = 16
"""Batches that one partition is given before the next one has its turn; one sync serves them."""
IN_FLIGHT = 64
RETRY_S = 0.001
_COPY_BYTES = 4 * MIB


@dataclass(frozen=True, slots=True)
class Restart:
    """One start. Seconds from the start of the process; `behind_bytes` were looked through."""

    port_s: float
    first_fetch_s: float
    last_fetch_s: float
    cpu_s: float
    behind_bytes: int


def run(session: Session) -> Iterator[Row]:
    """Starts from the page cache and starts from the disk, held against one limit."""
    scale = session.scale
    if shutil.disk_usage(session.directory).free < 2 * scale.restart_bytes:
        yield Skipped(GROUP, f"needs {2 * scale.restart_bytes / 1e9:.0f} GB of free disk")
        return
    data = session.directory / DATA
    counts = batch_counts(scale.restart_bytes // BATCH_BYTES, scale.restart_partitions)
    session.say(f"restart: writing {sum(counts) * BATCH_BYTES / 1e9:.1f} GB")
    try:
        acked = _write_and_kill(session, counts)
        snapshot = Snapshot(data)
        warm = [_restart(session, snapshot, acked, is_warm=True) for _ in _rounds(session)]
        behind = (
            f"{sum(counts) * BATCH_BYTES / 2**30:.3g} GiB in {len(counts)} partitions, "
            f"{warm[0].behind_bytes / 2**30:.3g} GiB of it behind the checkpoints"
        )
        yield from _facts("the page cache is warm", warm, behind, FIRST_FETCH_S)
        cold = [_restart(session, snapshot, acked, is_warm=False) for _ in _rounds(session)]
        yield from _facts("the page cache is empty", cold, behind, None)
    finally:
        shutil.rmtree(data, ignore_errors=True)


def _rounds(session: Session) -> range:
    return range(session.scale.restart_rounds)


def _facts(state: str, starts: Sequence[Restart], behind: str, limit: float | None) -> list[Row]:
    cpu_s = Spread.of([start.cpu_s for start in starts]).median
    return [
        Fact(
            GROUP,
            f"Port responds after kill -9, {state}",
            "s",
            Spread.of([start.port_s for start in starts]),
        ),
        Fact(
            GROUP,
            f"First fetch answered, {state}",
            "s",
            Spread.of([start.first_fetch_s for start in starts]),
            limit,
            behind,
        ),
        Fact(
            GROUP,
            f"The last record of every partition fetched, {state}",
            "s",
            Spread.of([start.last_fetch_s for start in starts]),
            None,
            f"{cpu_s:.2f} CPU s of the broker up to then",
        ),
    ]


def batch_counts(batches: int, partitions: int) -> list[int]:
    """How many batches each partition is given, of about `batches` in all.

    One short of a checkpoint everywhere; where there are too few for that, all the same number.
    """
    checkpoints = batches // CHECKPOINT_BATCHES
    if checkpoints < partitions:
        return [max(batches // partitions, 1)] * partitions
    least, more = divmod(checkpoints, partitions)
    return [(least + (number < more)) * CHECKPOINT_BATCHES - 1 for number in range(partitions)]


def _write_and_kill(session: Session, counts: Sequence[int]) -> list[int]:
    """Fills the partitions, ends the broker in the midst of it, and returns the ends it owes."""
    batch, records = batch_of(BATCH_BYTES)
    frames = [produce_frame(TOPIC, batch, partition=number) for number in range(len(counts))]
    turns = [
        number
        for run in range(0, max(counts), RUN)
        for number, count in enumerate(counts)
        for _ in range(run, min(run + RUN, count))
    ]
    # The last batch of the first partitions is left for the end.
    acked = list(counts)
    unanswered = range(min(IN_FLIGHT, len(counts)))
    with (
        running_broker(session, DATA) as broker,
        broker.connect() as connection,
    ):
        connection.create_topic(TOPIC, partitions=len(counts))
        requests = [frames[number] for number in turns]
        response = connection.exchange(requests[0])
        connection.decode(ApiKey.PRODUCE, response)
        pump(
            connection.sock,
            requests[1:],
            count=len(requests) - 1,
            in_flight=IN_FLIGHT,
            response_size=len(response),
        )
        for number in unanswered:
            connection.sock.sendall(frames[number])
        connection.decode(ApiKey.PRODUCE, read_response(connection.sock))
        os.kill(broker.pid, signal.SIGKILL)
    return [count * records for count in acked]


class Snapshot:
    """What a killed broker left in its data directory; `restore` makes it so again.

    Only right as long as nothing is appended: segments keep their bytes, and get their size back.
    """

    def __init__(self, data: Path) -> None:
        self._data = data
        files = [path for path in data.rglob("*") if path.is_file()]
        self.segments = {p: p.stat().st_size for p in files if p.suffix == ".log"}
        self._others = {p: p.read_bytes() for p in files if p.suffix != ".log"}

    def restore(self) -> None:
        """Puts everything back and makes it durable."""
        for path in [path for path in self._data.rglob("*") if path.is_file()]:
            if path not in self.segments and path not in self._others:
                path.unlink()
        for path, size in self.segments.items():
            os.truncate(path, size)
        for path, content in self._others.items():
            path.write_bytes(content)
        os.sync()

    def warm(self) -> None:
        """Reads every segment, so that it is in the page cache as far as there is memory."""
        buffer = bytearray(_COPY_BYTES)
        for path in self.segments:
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass

    def cool(self) -> None:
        """Has the kernel forget every file; a virtual machine's host may still know them."""
        for path in (*self.segments, *self._others):
            with path.open("rb", buffering=0) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _restart(
    session: Session, snapshot: Snapshot, ends: Sequence[int], *, is_warm: bool
) -> Restart:
    session.say(f"restart: {'warm' if is_warm else 'cold'}")
    snapshot.restore()
    if is_warm:
        snapshot.warm()
    else:
        snapshot.cool()
    logged = session.log.stat().st_size
    with running_broker(session, DATA, log_level="info") as broker:
        first_s, last_s = _fetch_everywhere(broker, ends)
        cpu_s = process_cpu_s(broker.pid)
        os.kill(broker.pid, signal.SIGKILL)
    return Restart(broker.ready_s, first_s, last_s, cpu_s, _behind_bytes(session.log, logged))


def _fetch_everywhere(broker: RunningBroker, ends: Sequence[int]) -> tuple[float, float]:
    """When the first of the partitions, asked in no order, had given its last record, and all."""
    waiting = deque(random.Random(0).sample(range(len(ends)), len(ends)))
    times: list[float] = []
    with broker.connect() as connection:
        while waiting:
            number = waiting.popleft()
            if _gives_its_last_record(connection, number, ends[number]):
                times.append(time.perf_counter() - broker.started)
            else:
                waiting.append(number)
                time.sleep(RETRY_S)
    return times[0], times[-1]


def _gives_its_last_record(connection: BrokerConnection, number: int, end_offset: int) -> bool:
    """False while the partition is not served yet.

    Raises `UnexpectedResponse` if the partition lost a batch.
    """
    question = ListOffsetsPartition(topic=TOPIC, partition=number, timestamp_ms=LATEST)
    listed = connection.call(ApiKey.LIST_OFFSETS, ListOffsetsRequest(partitions=(question,)))
    (end,) = listed.partitions
    if not _is_served(end):
        return False
    if end.offset < end_offset:
        raise UnexpectedResponse(
            f"partition {number} ends at offset {end.offset}, and {end_offset} were acknowledged"
        )
    request = fetch_frame(TOPIC, end.offset - 1, BATCH_BYTES, partition=number)
    (fetched,) = connection.decode(ApiKey.FETCH, connection.exchange(request)).partitions
    if not _is_served(fetched):
        return False
    if len(fetched.records) != BATCH_BYTES:
        raise UnexpectedResponse(f"partition {number} gives no batch at its end")
    return True


def _is_served(response: Any) -> bool:
    """False for a retriable error. Raises `UnexpectedResponse` for other errors."""
    if not response.error_code:
        return True
    if not ERROR_TRAITS[ErrorCode(response.error_code)].retriable:
        raise UnexpectedResponse(f"partition {response.partition}: {response.error_message}")
    return False


def _behind_bytes(log: Path, position: int) -> int:
    """What a start says it has looked through, in the part of a log from `position` on."""
    lines = log.read_bytes()[position:].splitlines()
    events = [json.loads(line) for line in lines if line.startswith(b"{")]
    return sum(e["scanned_bytes"] for e in events if e["event"] == "partition recovered")
