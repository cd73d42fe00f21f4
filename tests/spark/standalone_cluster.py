"""A standalone cluster of Spark on this machine: a master and workers, each a process.

Owns their start from the jars of the `pyspark` package, their addresses and their end. Each worker
has a loopback address and a directory of its own, as a machine has.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.hang_timeout import HANG_TIMEOUT_S

MASTER_HOST = "127.0.0.10"
WORKER_HOSTS = ("127.0.0.11", "127.0.0.12")
EXECUTOR_MEMORY = "512m"
"""The heap of an executor, and what a worker has for executors. Spark takes no less than 450m."""
_DAEMON_MEMORY = "128m"
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Daemon:
    """A running process of Spark, with a directory and a log."""

    process: subprocess.Popen[bytes]
    directory: Path

    @property
    def log(self) -> Path:
        return self.directory / "log"

    def has_run_tasks(self) -> bool:
        """Of a worker: whether an executor of it has begun a task."""
        logs = self.directory.glob("app-*/*/stderr")
        return any(b"Executor: Running task" in log.read_bytes() for log in logs)

    def kill(self) -> None:
        """Kills it as a power cut does its machine: with executors, and with their Pythons."""
        # A stopped process starts no other while the tree is read.
        for pid in list(_tree(self.process.pid, signal.SIGSTOP)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


@dataclass(frozen=True, slots=True)
class StandaloneCluster:
    """A running master, and workers of one core each."""

    master: str
    """spark://HOST:PORT."""
    workers: tuple[Daemon, ...]
    settings: Mapping[str, str]
    """Settings of Spark for an application, which has all workers from its first task on."""


@contextmanager
def standalone_cluster(
    directory: Path, environment: Mapping[str, str], hosts: Sequence[str] = WORKER_HOSTS
) -> Iterator[StandaloneCluster]:
    """Starts a cluster with a worker at each host, and kills it at the end.

    `environment` is that of `quick_spark`.
    """
    jvm = environment["SPARK_SUBMIT_OPTS"]
    environment = {**environment, "SPARK_DAEMON_JAVA_OPTS": jvm}
    with ExitStack() as running:
        master = _started(directory / "master", environment, "master.Master", MASTER_HOST)
        running.callback(master.kill)
        url = _found(master.log, r"Starting Spark master at (\S+)")
        workers = []
        for host in hosts:
            work = ("--work-dir", str(directory / host))
            limits = ("--cores", "1", "--memory", EXECUTOR_MEMORY)
            worker = _started(
                directory / host, environment, "worker.Worker", host, *limits, *work, url
            )
            running.callback(worker.kill)
            workers.append(worker)
        for worker in workers:
            _found(worker.log, r"Successfully registered with master (\S+)")
        settings = {
            "spark.driver.host": MASTER_HOST,
            "spark.driver.bindAddress": MASTER_HOST,
            "spark.executor.extraJavaOptions": jvm,
            "spark.cores.max": str(len(workers)),
            # However long the JVMs of the executors take to start.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "1h",
        }
        yield StandaloneCluster(url, tuple(workers), settings)


def _started(
    directory: Path, environment: Mapping[str, str], name: str, host: str, *arguments: str
) -> Daemon:
    import pyspark

    home = Path(pyspark.__file__).parent
    directory.mkdir()
    command = (home / "bin/spark-class", f"org.apache.spark.deploy.{name}")
    address = ("--host", host, "--port", "0", "--webui-port", "0")
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *address, *arguments],
            env={
                **os.environ,
                **environment,
                "SPARK_HOME": str(home),
                "SPARK_LOCAL_IP": host,
                "SPARK_LOCAL_DIRS": str(directory / "local"),
                "SPARK_DAEMON_MEMORY": _DAEMON_MEMORY,
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    return Daemon(process, directory)


def _found(log: Path, pattern: str) -> str:
    """Waits for a line of a log; returns the group of the pattern."""
    deadline = time.monotonic() + HANG_TIMEOUT_S
    while (found := re.search(pattern, log.read_text())) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{pattern!r} is not in the log:\n{log.read_text()}")
        time.sleep(_POLL_S)
    return found[1]


def _tree(pid: int, number: signal.Signals) -> Iterator[int]:
    """Sends a signal to a process and to all that it has started; yields their ids."""
    try:
        os.kill(pid, number)
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except (ProcessLookupError, FileNotFoundError):
        return
    yield pid
    for thread in threads:
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in (thread / "children").read_text().split():
                yield from _tree(int(child), number)
