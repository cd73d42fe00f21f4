"""A broker process to be attacked, and the cost of an attack.

Owns the process and the three things that are measured from outside: its peak of memory, what it
logged, and whether it lives. Knows no attack.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from millrace_server.limits import Limits
from tests.broker.wire import batch, connect
from tests.hang_timeout import HANG_TIMEOUT_S

MEMORY_BYTES_MAX = 256 << 20
"""How far above idle all clients together may bring a broker: the budget of requests and answers
(`request_memory_bytes`), ten thousand connections, and batches being looked at."""
assert Limits().request_memory_bytes <= MEMORY_BYTES_MAX * 3 // 4
SHORT_LIMITS = {
    "MILLRACE_LIMITS__FIRST_FRAME_TIMEOUT_MS": "300",
    "MILLRACE_LIMITS__FRAME_TIMEOUT_MS": "300",
    "MILLRACE_LIMITS__OUTPUT_STALLED_MS": "300",
    "MILLRACE_LIMITS__CONNECTIONS_MAX_IDLE_MS": "300",
    "MILLRACE_LIMITS__LINGER_MS": "100",
    "MILLRACE_LIMITS__AUTHENTICATION_TIMEOUT_MS": "300",
}
"""The environment of a broker with short timeouts, for attacks that would take a minute."""
LISTEN = "127.0.0.1:0,sasl://127.0.0.1:0"
SERVE = (sys.executable, "-m", "millrace_cli", "serve", "--listen", LISTEN)
GOOD = "good"
"""The well-behaved client's topic."""
TOPIC = "hostile"
"""The attackers' topic, with a whole batch in each of its partitions."""
LARGE = "large"
"""A topic with a mebibyte in each of its partitions."""
PARTITIONS = 4
FOREVER = {
    "durability": "os",
    "retention.ms": "-1",
    "message.timestamp.after.max.ms": str(2**63 - 1),
}
"""Settings of a topic: records of 1970, as those of an attack, are not removed by housekeeping."""


@dataclass(slots=True)
class Target:
    """A running broker. `full` asks attacks for their full size."""

    process: subprocess.Popen[bytes]
    port: int
    sasl_port: int
    data: Path
    stderr: Path
    full: bool = False
    idle_bytes: int = 0

    def sized(self, quick: int, full: int) -> int:
        """How often an attack repeats itself."""
        return full if self.full else quick

    async def prepare(self) -> None:
        """Makes the topics, and takes the memory of now for that of an idle broker."""
        async with connect(self.port) as wire:
            await wire.create(GOOD, configs={"retention.ms": "-1"})
            await wire.create(TOPIC, partitions=PARTITIONS, configs=FOREVER)
            await wire.create(LARGE, partitions=PARTITIONS, configs=FOREVER)
            for partition in range(PARTITIONS):
                await wire.produce(TOPIC, batch(b"one", b"two"), partition=partition)
                for _ in range(2):
                    await wire.produce(LARGE, batch(bytes(512 << 10)), partition=partition)
        self.idle_bytes = self._memory("VmRSS")

    def forget_peak(self) -> None:
        """Lets the peak of memory begin anew (proc(5), clear_refs)."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    @property
    def peak_bytes(self) -> int:
        """The most memory held since `forget_peak`, above the idle broker's."""
        return self._memory("VmHWM") - self.idle_bytes

    @property
    def logged_bytes(self) -> int:
        """How much the broker has written to stderr."""
        return self.stderr.stat().st_size

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    @property
    def open_files(self) -> int:
        """Descriptors that the broker holds."""
        return sum(1 for _ in Path(f"/proc/{self.process.pid}/fd").iterdir())

    def holds_connection_from(self, port: int) -> bool:
        """Whether the broker has its end of a connection from this local port (proc(5), net/tcp);
        the kernel may have it longer, with what was not read."""
        for line in Path(f"/proc/{self.process.pid}/net/tcp").read_text().splitlines()[1:]:
            _, local, remote, _, _, _, _, _, _, inode, *_ = line.split()
            ports = int(local.rpartition(":")[2], 16), int(remote.rpartition(":")[2], 16)
            if ports == (self.port, port) and inode != "0":
                return True
        return False

    async def until(self, fact: Callable[[], bool]) -> None:
        """Waits for something that the broker does by itself."""
        while not fact():  # noqa: ASYNC110 - another process announces nothing
            await asyncio.sleep(0.05)

    def _memory(self, name: str) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) << 10
        raise LookupError(f"/proc tells no {name} of process {self.process.pid}")


def before_others() -> None:
    """Puts this process before what else the machine does, where that is allowed."""
    with suppress(PermissionError):
        os.nice(-10)


@contextmanager
def broker_process(
    directory: Path, *, environment: Mapping[str, str] | None = None, full: bool = False
) -> Iterator[Target]:
    """`millrace serve` on a free port, prepared; at the end it must still stop in order."""
    stderr = directory / "stderr"
    with stderr.open("wb") as log:
        process = subprocess.Popen(
            [*SERVE, "--data", str(directory / "data")],
            stdout=subprocess.PIPE,
            stderr=log,
            # Clients of the listener without SASL need no rights.
            env={**os.environ, "MILLRACE_AUTHORIZATION": "off", **(environment or {})},
            preexec_fn=before_others if full else None,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        if not line.startswith("listening on "):
            raise RuntimeError(f"the broker did not start: {stderr.read_text()}")
        port, sasl_port = (int(each.rpartition(":")[2]) for each in line.split(","))
        target = Target(process, port, sasl_port, directory / "data", stderr, full=full)
        asyncio.run(target.prepare())
        yield target
        process.send_signal(signal.SIGTERM)
        if process.wait(timeout=HANG_TIMEOUT_S) != 0:
            raise RuntimeError(f"the broker ended with {process.returncode}: {stderr.read_text()}")
    finally:
        process.kill()
        process.communicate()
