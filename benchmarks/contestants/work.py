"""What a contestant is told to do, and what it reports."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import Literal

from benchmarks.samples import Sample


@dataclass(frozen=True, slots=True)
class Work:
    """One round. Sizes in bytes; `records` are sent, or received from all partitions together."""

    servers: str
    topic: str
    records: int
    partitions: int = 1
    value_bytes: int = 100
    batch_bytes: int = 128 << 10
    linger_ms: int = 5
    acks: Literal["all", 1] = 1
    tls_ca: str = ""
    """File of the authority of the brokers' certificates; empty: the connection is plain."""

    @property
    def value(self) -> bytes:
        """The value of every record."""
        return b"v" * self.value_bytes

    @property
    def warm_up_records(self) -> int:
        """Records before the clock starts: connections, metadata and caches are in place then."""
        return max(self.records // 20, 1)

    def to_json(self) -> str:
        """For the command line of a contestant."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Work:
        """The inverse of `to_json`."""
        return cls(**json.loads(text))


class Stopwatch:
    """Wall time and CPU time, of all threads of this process, since it was made."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._wall = time.perf_counter()

    def sample(self, units: float) -> Sample:
        """What has passed, for `units` of work."""
        wall = time.perf_counter() - self._wall
        return Sample(units, wall, time.process_time() - self._cpu)
