"""A stream into Parquet whose driver, JVM and all, is killed again and again: each record once.

    python -m tests.spark.stream_kills --rounds 20

A producer stays some records ahead of the stream. In each round a process of its own runs the
stream, and is killed with SIGKILL at a random moment of a random micro-batch, sometimes the first
one. At the end the stream reads the remaining records. The files in the file sink's log must have
each record exactly once, and the group with the progress must have no lag.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from millrace.records import TopicPartition
from millrace.sync import Admin, Producer
from millrace_server.testing import BrokerThread

TOPIC, GROUP, PARTITIONS = "kills", "kills-progress", 3
RECORDS_PER_SECOND = 1_000
RECORDS_AHEAD_MAX = 6_000
"""The producer waits when it is so far ahead of the stream, so that a slow machine, whose JVM takes
long to start, has no more records to read than a fast one."""
MICRO_BATCHES_MAX = 3
"""Most micro-batches of a round."""
MOMENT_S_MAX = 0.25
"""Longest time from the begin of a micro-batch to the kill; a micro-batch takes about as long."""
STALLED_S = 180.0
ROOT = Path(__file__).resolve().parents[2]


def stream(servers: str, folder: Path) -> None:
    """Runs the stream until the process is killed."""
    from millrace_spark import session

    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        # A JVM that lives for seconds has no use for more.
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }
    spark = session("stream kills", master="local[2,3]", conf=conf)
    spark.sparkContext.setLogLevel("ERROR")
    sink(spark, servers, folder).start().awaitTermination()


def finish(spark: Any, servers: str, folder: Path) -> None:
    """Runs the stream until it has read all records."""
    query = sink(spark, servers, folder).trigger(availableNow=True).start()
    assert query.awaitTermination(STALLED_S), f"the last run takes more than {STALLED_S} s"


def sink(spark: Any, servers: str, folder: Path) -> Any:
    """The writer of the stream into Parquet."""
    options = {
        "millrace.servers": servers,
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "5000",
        "commitGroup": GROUP,
    }
    frame = spark.readStream.format("millrace").options(**options).load()
    return (
        frame.select("partition", "offset", "value")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("path", str(folder / "out"))
    )


class Writer:
    """Writes numbered records, in turn to each partition, at most `RECORDS_AHEAD_MAX` ahead."""

    def __init__(self, servers: str, folder: Path) -> None:
        self._servers = servers
        self._folder = folder
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.count = 0
        """Records that were acked."""

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopped.set()
        self._thread.join()

    def _run(self) -> None:
        with Producer(self._servers) as producer:
            bunch = RECORDS_PER_SECOND // 20
            while not self._is_stopped.wait(1 / 20):
                if self.count - _planned_records(self._folder) >= RECORDS_AHEAD_MAX:
                    continue
                values = [b"%d" % number for number in range(self.count, self.count + bunch)]
                producer.send_many(TOPIC, values, partition=self.count // bunch % PARTITIONS)
                self.count += bunch


def kill_one(servers: str, folder: Path, rng: random.Random) -> int:
    """Starts the stream and kills it; returns the number of micro-batches it has begun."""
    begun = _last(folder, "offsets")
    wanted = begun + rng.randint(1, MICRO_BATCHES_MAX)
    child = _start(servers, folder)
    try:
        deadline = time.monotonic() + STALLED_S
        while _last(folder, "offsets") < wanted:
            if child.poll() is not None:
                raise AssertionError(f"the stream failed: {_last_words(folder)}")
            if time.monotonic() > deadline:
                raise AssertionError(f"no micro-batch within {STALLED_S} s: {_last_words(folder)}")
            time.sleep(0.005)
        time.sleep(rng.uniform(0, MOMENT_S_MAX))
    finally:
        # The JVM is in the group of the driver; its workers end with it.
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    assert child.returncode == -signal.SIGKILL
    return _last(folder, "offsets") - begun


def run(folder: Path, spark: Any, *, rounds: int, seed: int) -> str:
    """All rounds and the check; returns a summary. Raises `AssertionError`.

    The session `spark` finishes the stream.
    """
    rng = random.Random(seed)
    with BrokerThread(topic={"durability": "os", "retention.ms": "-1"}) as broker:
        with Admin(broker.servers) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
        undone = 0
        with Writer(broker.servers, folder) as writer:
            for _ in range(rounds):
                assert kill_one(broker.servers, folder, rng) > 0
                undone += _last(folder, "offsets") > _last(folder, "commits")
        finish(spark, broker.servers, folder)
        check(folder, broker.servers, writer.count)
        micro_batches = _last(folder, "offsets") + 1
    return (
        f"{rounds} kills, {undone} of them amid a micro-batch, seed {seed}: {writer.count} records "
        f"in {micro_batches} micro-batches, each record once"
    )


def check(folder: Path, servers: str, count: int) -> None:
    """Raises `AssertionError` unless the log of the file sink names each record once."""
    from pyarrow import parquet

    found: Counter[tuple[int, int]] = Counter()
    values: set[bytes] = set()
    for path in committed_files(folder / "out"):
        table = parquet.read_table(path, columns=["partition", "offset", "value"])
        columns = (table.column(name).to_pylist() for name in ("partition", "offset", "value"))
        for partition, offset, value in zip(*columns, strict=True):
            found[partition, offset] += 1
            values.add(value)
    with Admin(servers) as admin:
        wheres = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        latest = admin.list_offsets(dict.fromkeys(wheres, "latest"))
        committed = admin.list_group_offsets(GROUP)
    wanted = {
        (where.partition, offset) for where in wheres for offset in range(latest[where].offset)
    }
    assert sum(at.offset for at in latest.values()) == count, "the producer's count is wrong"
    repeated = [where for where, times in found.items() if times > 1]
    assert not repeated, f"{len(repeated)} records are in the files more than once: {repeated[:5]}"
    missing = wanted - found.keys()
    assert not missing, f"{len(missing)} records are missing: {sorted(missing)[:5]}"
    assert values == {b"%d" % number for number in range(count)}
    lags = {where: latest[where].offset - committed[where].offset for where in wheres}
    assert not any(lags.values()), f"the group lags: {lags}"


def committed_files(out: Path) -> list[Path]:
    """The files in the log of the file sink; other files are of unfinished micro-batches."""
    log = out / "_spark_metadata"
    batches = {int(path.stem): path for path in log.iterdir() if path.stem.isdigit()}
    compact = max((n for n, path in batches.items() if path.suffix == ".compact"), default=-1)
    files = []
    for number in sorted(batches):
        if number >= compact:
            _, *entries = batches[number].read_text().splitlines()
            files += [Path(json.loads(entry)["path"].removeprefix("file://")) for entry in entries]
    return files


def _start(servers: str, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.spark.stream_kills", "--stream", servers]
    with (folder / "stderr").open("ab") as stderr:
        return subprocess.Popen(
            [*command, "--folder", str(folder)],
            cwd=ROOT,
            start_new_session=True,
            stderr=stderr,
        )


def _last_words(folder: Path) -> str:
    return (folder / "stderr").read_text(errors="replace")[-4000:]


def _last(folder: Path, log: str) -> int:
    """The number of the last micro-batch in one of Spark's logs, -1 before the first."""
    names = (path.name for path in (folder / "checkpoint" / log).glob("[0-9]*"))
    return max(map(int, names), default=-1)


def _planned_records(folder: Path) -> int:
    """The number of records up to the end of the last micro-batch in the checkpoint."""
    number = _last(folder, "offsets")
    if number < 0:
        return 0
    *_, document = (folder / "checkpoint" / "offsets" / str(number)).read_text().splitlines()
    return sum(json.loads(document).get(TOPIC, {}).values())


def main() -> None:
    """The command, and the stream in its process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--stream", metavar="SERVERS", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.stream is not None:
        stream(given.stream, given.folder)
        return
    from millrace_spark import session

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        print(run(Path(folder), session(), rounds=given.rounds, seed=given.seed))


if __name__ == "__main__":
    main()
