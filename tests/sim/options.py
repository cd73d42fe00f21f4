"""What a run is like, drawn from its seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millrace_server.config import BrokerConfig
from tests.sim.host import Rng

TROUBLES = ("kill", "power", "restart", "reset", "cut", "full", "sync_error")


@dataclass(frozen=True, slots=True)
class Options:
    """All that differs between runs. Many runs have few kinds of trouble, some have none."""

    topics: int
    producers: int
    consumers: int
    durabilities: tuple[str, ...]
    idempotent: bool
    acks: str | int
    compression: str
    creates_topics: bool
    linger_ms: int
    batch_bytes: int
    request_timeout_ms: int
    delivery_timeout_ms: int
    max_partition_bytes: int
    troubles: tuple[str, ...]
    trouble_s: float
    trouble_every_s: float
    latency_max_s: float
    blocking_max_s: float
    window_bytes: int
    network_segment_bytes: int
    housekeeping_interval_ms: int

    @classmethod
    def draw(cls, rng: Rng) -> Options:
        """The options of a seed."""
        idempotent = rng.random() < 0.7
        latency_max_s = rng.choice((0.0002, 0.002, 0.02))
        return cls(
            topics=rng.randint(1, 3),
            producers=rng.randint(1, 3),
            consumers=rng.randint(1, 2),
            durabilities=rng.choice((("fsync",), ("fsync",), ("fsync", "os"), ("os",))),
            idempotent=idempotent,
            acks="all" if idempotent else rng.choice(("all", 1)),
            compression=rng.choice(("none", "none", "gzip", "lz4")),
            creates_topics=rng.random() < 0.3,
            linger_ms=rng.choice((0, 5, 50)),
            batch_bytes=rng.choice((256, 4096, 131072)),
            request_timeout_ms=rng.choice((400, 2000, 10_000)),
            delivery_timeout_ms=rng.choice((2000, 8000, 30_000)),
            max_partition_bytes=rng.choice((512, 8192, 1 << 18)),
            troubles=tuple(rng.sample(TROUBLES, rng.choice((0, 1, 2, 3, len(TROUBLES))))),
            trouble_s=rng.uniform(5, 25),
            trouble_every_s=rng.choice((0.3, 1.0, 3.0)),
            latency_max_s=latency_max_s,
            blocking_max_s=rng.choice((0.0005, 0.005, 0.05)),
            # A window that is too small for the latency makes answers slower than any timeout.
            window_bytes=65536 if latency_max_s > 0.01 else rng.choice((8192, 65536)),
            network_segment_bytes=rng.choice((536, 1448, 65536)),
            housekeeping_interval_ms=rng.choice((100, 1000, 5000)),
        )

    def config(self) -> BrokerConfig:
        """The broker's configuration."""
        return BrokerConfig(
            listen="127.0.0.1:9092",
            housekeeping_interval_ms=self.housekeeping_interval_ms,
            drain_timeout_ms=1000,
            topic={"retention.ms": "-1"},
        )

    def client(self) -> dict[str, Any]:
        """Settings of every client."""
        return {
            "request_timeout_ms": self.request_timeout_ms,
            "connect_timeout_ms": min(self.request_timeout_ms, 1000),
            "retry_backoff_ms": 20,
            "retry_backoff_max_ms": 500,
            "metadata_max_age_ms": 3000,
        }

    def producer(self) -> dict[str, Any]:
        """Settings of producers."""
        return {
            **self.client(),
            "acks": self.acks,
            "idempotent": self.idempotent,
            "compression": self.compression,
            "linger_ms": self.linger_ms,
            "batch_bytes": self.batch_bytes,
            "max_request_bytes": 1 << 18,
            "buffer_bytes": 1 << 19,
            "delivery_timeout_ms": self.delivery_timeout_ms,
        }

    def consumer(self) -> dict[str, Any]:
        """Settings of consumers."""
        return {
            **self.client(),
            "fetch_max_wait_ms": min(300, self.request_timeout_ms // 2),
            "max_partition_bytes": self.max_partition_bytes,
            "fetch_max_bytes": 1 << 18,
        }
