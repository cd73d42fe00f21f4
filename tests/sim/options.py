"""What a run is like, drawn from its seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from millrace.config import Acks, Compression
from millrace_server.config import BrokerConfig
from millrace_simulation.clock import NO_SKEW, Skew
from millrace_simulation.world import Rng

PORT = 9092
"""Of every broker; each has a host of its own."""
TROUBLES = (
    "kill",
    "power",
    "power_soon",
    "restart",
    "pause",
    "clock",
    "election",
    "reset",
    "cut",
    "slow",
    "link",
    "busy",
    "full",
    "full_start",
    "write_error",
    "sync_error",
    "read_error",
    "client_kill",
    "client_cancel",
    "client_pause",
)
_TROUBLES_BESIDE_ROT = ("kill", "power", "restart", "reset")
_DELAYING = frozenset({"cut", "slow", "link", "pause"})
_SKEWS = (NO_SKEW, Skew(50, 2e-4), Skew(10_000, 0.02))
"""None; that of machines that ask NTP servers; and more than any quartz has."""
_ANSWERED: tuple[Acks, ...] = ("all", 1)
"""What an idempotent producer may ask for."""
_ACKS: tuple[Acks, ...] = (*_ANSWERED, 0)
_COMPRESSIONS: tuple[Compression, ...] = ("none", "none", "gzip", "snappy", "lz4", "zstd")
Retention = Literal["none", "bytes", "ms"]


@dataclass(frozen=True, slots=True)
class ProducerStyle:
    """How one producer sends."""

    acks: Acks
    idempotent: bool
    compression: Compression
    linger_ms: int
    batch_bytes: int

    @classmethod
    def draw(cls, rng: Rng) -> ProducerStyle:
        idempotent = rng.random() < 0.6
        return cls(
            acks=rng.choice(_ANSWERED if idempotent else _ACKS),
            idempotent=idempotent,
            compression=rng.choice(_COMPRESSIONS),
            linger_ms=rng.choice((0, 5, 50)),
            batch_bytes=rng.choice((256, 4096, 131072)),
        )


@dataclass(frozen=True, slots=True)
class Options:
    """All that differs between runs. Many runs have few kinds of trouble, some have none.

    `is_hopeless`: what was durable is damaged too, and only silence about it is a violation.
    """

    is_hopeless: bool
    brokers: int
    skew: Skew
    topics: int
    producers: tuple[ProducerStyle, ...]
    consumers: int
    durabilities: tuple[str, ...]
    retentions: tuple[Retention, ...]
    churns: bool
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
        is_hopeless = rng.random() < 0.15
        brokers = rng.choice((1, 1, 2, 3))
        latency_max_s = rng.choice((0.0002, 0.002, 0.02))
        if is_hopeless:
            others = rng.sample(_TROUBLES_BESIDE_ROT, rng.randint(0, 2))
            troubles = ("rot", *others)
        else:
            troubles = tuple(rng.sample(TROUBLES, rng.choice((0, 1, 2, 3, 5, len(TROUBLES)))))
        return cls(
            is_hopeless=is_hopeless,
            brokers=brokers,
            skew=rng.choice(_SKEWS),
            topics=max(brokers, rng.randint(1, 3)),
            producers=tuple(ProducerStyle.draw(rng) for _ in range(rng.randint(1, 3))),
            consumers=rng.randint(1, 2),
            durabilities=rng.choice((("fsync",), ("fsync",), ("fsync", "os"), ("os",))),
            retentions=rng.choice(
                (("none",), ("none",), ("none", "bytes", "ms"), ("bytes",), ("ms",))
            ),
            churns=not is_hopeless and rng.random() < 0.3,
            request_timeout_ms=rng.choice((400, 2000, 10_000)),
            delivery_timeout_ms=rng.choice((2000, 8000, 30_000)),
            max_partition_bytes=rng.choice((512, 8192, 1 << 18)),
            troubles=troubles,
            trouble_s=rng.uniform(5, 25),
            trouble_every_s=rng.choice((0.3, 1.0, 3.0)),
            latency_max_s=latency_max_s,
            blocking_max_s=rng.choice((0.0005, 0.005, 0.05)),
            # A window that is too small for the latency makes answers slower than any timeout.
            window_bytes=65536 if latency_max_s > 0.01 else rng.choice((8192, 65536)),
            network_segment_bytes=rng.choice((536, 1448, 65536)),
            housekeeping_interval_ms=rng.choice((100, 1000, 5000)),
        )

    def with_troubles(self, troubles: tuple[str, ...]) -> Options:
        """The same with other troubles; topics that are damaged cannot be deleted."""
        is_hopeless = "rot" in troubles
        churns = self.churns and not is_hopeless
        return replace(self, troubles=troubles, is_hopeless=is_hopeless, churns=churns)

    @property
    def replication_factor(self) -> int | None:
        """Replicas of each partition; None: what the broker decides."""
        return None

    @property
    def topic_configs(self) -> dict[str, str]:
        """Settings of every topic."""
        return {}

    @property
    def pace(self) -> float:
        """How many times longer than usual producers wait between two bursts."""
        return 1

    def promises(self, acks: Acks) -> bool:
        """Whether what is acked so is there for good."""
        return True

    def may_refuse_start(self, error: Exception) -> bool:
        """Whether a broker may give this as the reason why it does not start, and be right."""
        return False

    @property
    def delays_requests(self) -> bool:
        """Whether a request may arrive long after its sender gave it up."""
        return not _DELAYING.isdisjoint(self.troubles)

    def config(self, host: str, number: int) -> BrokerConfig:
        """The configuration of one broker."""
        return BrokerConfig(
            listen=f"{host}:{PORT}",
            insecure_listen=True,
            node_id=number,
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

    def producer(self, style: ProducerStyle) -> dict[str, Any]:
        """Settings of producers."""
        return {
            **self.client(),
            "acks": style.acks,
            "idempotent": style.idempotent,
            "compression": style.compression,
            "linger_ms": style.linger_ms,
            "batch_bytes": style.batch_bytes,
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
