"""A stream into Parquet whose driver, JVM and all, is killed again and again: each record once.

    python -m tests.spark.stream_kills --rounds 20

A producer writes all the time. In each round a process of its own runs the stream, and is killed
with SIGKILL at a random moment of a random micro-batch, sometimes the first one. At the end the
stream reads what is left, and what the file sink's log names must hold each record exactly once,
and the group that shows the progress must have no lag.
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

from millrace.records import TopicPartition
from millrace.sync import Admin, Producer
from millrace_server.testing import BrokerThread

TOPIC, GROUP, PARTITIONS = "kills", "kills-progress", 3
RECORDS_PER_SECOND = 1_000
MICRO_BATCHES_MAX = 3
"""A round lasts for so many micro-batches at most."""
MOMENT_S_MAX = 0.25
"""A kill comes so long after a micro-batch has begun at most; that is how long one takes."""
STALLED_S = 180.0
ROOT = Path(__file__).resolve().parents[2]


def stream(servers: str, folder: Path, *, is_last: bool) -> None:
    """Runs the stream: for good, or until it has read what there is."""
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
    options = {
        "millrace.servers": servers,
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "5000",
        "commitGroup": GROUP,
    }
    frame = spark.readStream.format("millrace").options(**options).load()
    writer = (
        frame.select("partition", "offset", "value")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("path", str(folder / "out"))
    )
    query = (writer.trigger(availableNow=True) if is_last else writer).start()
    query.awaitTermination()
    spark.stop()


class Writer:
    """Writes numbered records, in turn to each partition, until it is stopped."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
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
                values = [b"%d" % number for number in range(self.count, self.count + bunch)]
                producer.send_many(TOPIC, values, partition=self.count // bunch % PARTITIONS)
                self.count += bunch


def kill_one(servers: str, folder: Path, rng: random.Random) -> int:
    """Starts the stream and kills it; returns how many micro-batches it has begun."""
    begun = _last(folder, "offsets")
    wanted = begun + rng.randint(1, MICRO_BATCHES_MAX)
    child = _start(servers, folder)
    try:
        deadline = time.monotonic() + STALLED_S
        while _last(folder, "offsets") < wanted:
            if child.poll() is not None:
                raise AssertionError(f"the stream ended by itself: {_last_words(folder)}")
            if time.monotonic() > deadline:
                raise AssertionError(f"it stands still for {STALLED_S} s: {_last_words(folder)}")
            time.sleep(0.005)
        time.sleep(rng.uniform(0, MOMENT_S_MAX))
    finally:
        # The JVM is in the group of the driver; its workers end with it.
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    assert child.returncode == -signal.SIGKILL
    return _last(folder, "offsets") - begun


def run(folder: Path, *, rounds: int, seed: int) -> str:
    """All rounds and the check; returns a summary. Raises `AssertionError`."""
    rng = random.Random(seed)
    with BrokerThread(topic={"durability": "os", "retention.ms": "-1"}) as broker:
        with Admin(broker.servers) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
        undone = 0
        with Writer(broker.servers) as writer:
            for _ in range(rounds):
                assert kill_one(broker.servers, folder, rng) > 0
                undone += _last(folder, "offsets") > _last(folder, "commits")
        last = _start(broker.servers, folder, is_last=True)
        try:
            assert last.wait(STALLED_S) == 0, f"the last run failed: {_last_words(folder)}"
        finally:
            last.kill()
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
    assert sum(at.offset for at in latest.values()) == count, "the producer lost count"
    repeated = [where for where, times in found.items() if times > 1]
    assert not repeated, f"{len(repeated)} records are there more than once: {repeated[:5]}"
    missing = wanted - found.keys()
    assert not missing, f"{len(missing)} records are missing: {sorted(missing)[:5]}"
    assert values == {b"%d" % number for number in range(count)}
    lags = {where: latest[where].offset - committed[where].offset for where in wheres}
    assert not any(lags.values()), f"the group lags: {lags}"


def committed_files(out: Path) -> list[Path]:
    """The files that the log of the file sink names; others are of batches that were not done."""
    log = out / "_spark_metadata"
    batches = {int(path.stem): path for path in log.iterdir() if path.stem.isdigit()}
    compact = max((n for n, path in batches.items() if path.suffix == ".compact"), default=-1)
    files = []
    for number in sorted(batches):
        if number >= compact:
            _, *entries = batches[number].read_text().splitlines()
            files += [Path(json.loads(entry)["path"].removeprefix("file://")) for entry in entries]
    return files


def _start(servers: str, folder: Path, *, is_last: bool = False) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.spark.stream_kills", "--stream", servers]
    with (folder / "stderr").open("ab") as stderr:
        return subprocess.Popen(
            [*command, "--folder", str(folder), *(["--last"] if is_last else [])],
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


def main() -> None:
    """The command, and the stream in its process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--stream", metavar="SERVERS", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--last", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.stream is not None:
        stream(given.stream, given.folder, is_last=given.last)
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        print(run(Path(folder), rounds=given.rounds, seed=given.seed))


if __name__ == "__main__":
    main()
