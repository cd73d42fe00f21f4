"""What one client process is told to do, and what it reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

BATCH_BYTES = 1_000_000
"""The default of millrace and of librdkafka; the other clients are given it."""


@dataclass(frozen=True, slots=True)
class Task:
    """One round of one client. Sizes in bytes.

    `partitions` are those that the client reads, or fills one after the other. `records` are sent
    by this client, or received from all of its partitions together, without the warm-up.
    """

    servers: str
    topic: str
    method: str = ""
    partitions: Sequence[int] = (0,)
    records: int = 0
    warm_up: int = 0
    value_bytes: int = 100
    compression: str = "none"
    acks: str = "1"
    linger_ms: int = 5
    rate: float = 0.0
    """Records per second of the schedule; 0: as fast as the client takes them."""
    group: str = ""

    @property
    def wire_acks(self) -> Literal["all", 1]:
        """`acks` as clients take it."""
        return "all" if self.acks == "all" else 1

    def to_json(self) -> str:
        """For the command line of a client."""
        return json.dumps({**asdict(self), "partitions": list(self.partitions)})

    @classmethod
    def from_json(cls, text: str) -> Task:
        """The inverse of `to_json`."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Report:
    """What one client did.

    `began` and `ended` are on the clock of `time.monotonic`, which all processes share; `cpu_s` is
    of all threads and children of the client. `checksum` is set where values were compared.
    """

    records: int
    value_bytes: int
    began: float
    ended: float
    cpu_s: float
    checksum: int | None = None
    latencies_ms: Sequence[float] = ()

    @classmethod
    def from_json(cls, text: str) -> Report:
        """The inverse of `dataclasses.asdict` by way of JSON."""
        return cls(**json.loads(text))
