"""Imports killed with -9 while a producer writes: `python -m tests.spark.import_kills --rounds 20`.

Owns the rounds and the count at the end: every record of the log is in the Parquet files once, and
the group has no lag. Either the command runs as a user runs it, with its JVM and Python workers, or
all of it but Spark, which is ready to be killed in half a second instead of ten.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millrace.sync import Admin, Producer
from millrace_server.testing import BrokerThread
from millrace_spark.pipeline.import_run import ImportSettings, import_topics
from tests.spark.import_here import run_here

TOPIC = "kills"
GROUP = "import-kills"
PARTITIONS = 3
RECORDS_AT_FIRST = 2_000
"""Enough records for a machine so fast that the writer adds few before the last kill."""
RECORDS_AT_ONCE = 100
PAUSE_S = 0.05
TIMEOUT_S = 600.0
LIFE_SHARE_MAX = 0.5
"""Longest life of an import after its first effect, as a share of the time to that effect: on a
busy machine everything takes longer, and batches must end between kills."""
PIECE_BYTES = "64k"
"""Bytes of a range: small, so that a kill is between two of many ranges."""
FAST_START = "spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The counts after all rounds."""

    kills: int
    produced: int
    imported: int
    files: int
    repeated: int
    missing: int
    lag: int

    @property
    def is_exactly_once(self) -> bool:
        """Whether every record was imported once, and the group has no lag."""
        return self.produced == self.imported and not (self.repeated or self.missing or self.lag)


def run_rounds(directory: Path, *, rounds: int, seed: int, spark: Any = None) -> Outcome:
    """Kills `rounds` imports, finishes the last one, and counts.

    With a session, the imports are commands with Spark, and the session finishes the last one.
    Without, tasks run in the processes of the imports.
    """
    rng = random.Random(seed)
    out = directory / "out"
    with BrokerThread(data=directory / "broker", topic={"durability": "os"}) as broker:
        with Admin(broker.servers) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
        writer = _Writer(broker.servers)
        writer.start()
        try:
            for _ in range(rounds):
                _killed_import(broker.servers, out, rng, is_spark=spark is not None)
        finally:
            writer.stop()
        _finish(broker.servers, out, spark)
        return counted(broker.servers, out, kills=rounds)


class _Writer(threading.Thread):
    """Produces numbered records until it is stopped."""

    def __init__(self, servers: str) -> None:
        super().__init__(name="writer", daemon=True)
        self._servers = servers
        self._is_over = threading.Event()

    def run(self) -> None:
        first, end = 0, RECORDS_AT_FIRST
        with Producer(self._servers) as producer:
            while True:
                values = [b"%d" % number for number in range(first, end)]
                producer.send_many(TOPIC, values, keys=values)
                if self._is_over.wait(PAUSE_S):
                    return
                first, end = end, end + RECORDS_AT_ONCE

    def stop(self) -> None:
        """Ends when the last records are acked."""
        self._is_over.set()
        self.join()


def _spark_command(servers: str, out: Path, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "millrace_cli", "spark", "import", TOPIC),
        *("--to", str(out), "--group", GROUP, "--servers", servers, "--quiet"),
        *("--max-partition-bytes", PIECE_BYTES, "--master", "local[2,3]", "--conf", FAST_START),
        *more,
    ]


def _killed_import(servers: str, out: Path, rng: random.Random, *, is_spark: bool) -> None:
    """Starts an import and kills it at a moment of its life, alone or with its JVM."""
    if is_spark:
        # An import with --follow has many batches, so that the kill may be at any step.
        more = ("--follow", "--every", "0.1") if rng.random() < 0.7 else ()
        command = _spark_command(servers, out, *more)
    else:
        module = (sys.executable, "-m", "tests.spark.import_here")
        command = [*module, TOPIC, servers, str(out), GROUP, PIECE_BYTES]
    before = _state(out)
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            started = time.monotonic()
            deadline = started + TIMEOUT_S
            while _state(out) == before and process.poll() is None:
                if time.monotonic() > deadline:
                    raise TimeoutError("the import did nothing")
                time.sleep(0.005)
            if is_spark and rng.random() < 0.6:
                _until_tasks_run(out, process, deadline)
            with suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0, LIFE_SHARE_MAX * (time.monotonic() - started)))
            if process.poll() not in (None, 0):
                assert process.stderr is not None
                raise RuntimeError(process.stderr.read().decode(errors="replace"))
        finally:
            if rng.random() < 0.5:
                process.kill()
            else:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def _until_tasks_run(out: Path, process: subprocess.Popen[bytes], deadline: float) -> None:
    """Waits for the first file in staging, which takes Spark seconds."""
    staging = out / "_millrace/staging"
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if any(staging.iterdir()):
                return
        except FileNotFoundError:
            pass
        time.sleep(0.005)


def _state(out: Path) -> tuple[bytes, int]:
    """The ledger, and the number of finished ranges of the open batch."""
    own = out / "_millrace"
    try:
        return (own / "ledger.json").read_bytes(), sum(1 for _ in own.glob("done/*/*"))
    except FileNotFoundError:
        return b"", 0


def _finish(servers: str, out: Path, spark: Any) -> None:
    settings = ImportSettings((TOPIC,), str(out), servers, GROUP, max_partition_bytes=PIECE_BYTES)
    if spark is None:
        run_here(settings)
    else:
        import_topics(lambda: spark, settings)


def counted(servers: str, out: Path, *, kills: int) -> Outcome:
    """Compares what a reader of Parquet sees with the log, by partition and offset."""
    from pyarrow import dataset

    read = dataset.dataset(out, format="parquet")
    table = read.to_table(columns=["partition", "offset", "value"])
    places = list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
    found = Counter(places)
    with Admin(servers) as admin:
        ends = admin.list_offsets({(TOPIC, number): "latest" for number in range(PARTITIONS)})
        committed = admin.list_group_offsets(GROUP)
    expected = {
        (where.partition, offset) for where, end in ends.items() for offset in range(end.offset)
    }
    # The producer is idempotent, so a number is in the log once.
    numbers = Counter(table["value"].to_pylist())
    return Outcome(
        kills,
        produced=len(expected),
        imported=len(places),
        files=len(read.files),
        repeated=sum(count - 1 for count in (found + numbers).values()),
        missing=len(expected - set(found)),
        lag=sum(end.offset - committed[where].offset for where, end in ends.items()),
    )


def main() -> int:
    """Runs the rounds that the arguments ask for; 0 if every record was imported once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without-spark", action="store_true")
    options = parser.parse_args()
    spark = None
    if not options.without_spark:
        from millrace_spark import session

        spark = session()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        outcome = run_rounds(
            Path(directory),
            rounds=options.rounds,
            seed=options.seed,
            spark=spark,
        )
    print(f"{time.monotonic() - started:.0f} s: {outcome}")
    return 0 if outcome.is_exactly_once else 1


if __name__ == "__main__":
    sys.exit(main())
