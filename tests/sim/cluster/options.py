"""What a run of a whole cluster is like, drawn from its seed.

Owns how clusters differ: how many brokers, how many copies of each record, who may fail. What
clients do is `tests.sim.options`' with two differences: every topic is as durable as it can be, and
an ack is a promise only with acks=all, because the leader that gave another one may be lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from millrace.config import Acks
from millrace_server.config import BrokerConfig
from millrace_simulation.broker import is_want_of_quorum
from millrace_simulation.clock import NO_SKEW, Skew
from millrace_simulation.world import Rng
from tests.sim.options import PORT, Options, ProducerStyle

BROKER_PORT = 9093
"""Where brokers listen for each other."""
TROUBLES = (
    "kill",
    "kill_all",
    "power",
    "power_soon",
    "power_majority",
    "power_all",
    "restart",
    "pause",
    "clock",
    "reset",
    "isolate",
    "cut",
    "slow",
    "link",
    "move",
    "busy",
    "full",
    "write_error",
    "sync_error",
    "read_error",
    "client_kill",
    "client_cancel",
    "client_pause",
)
_SKEWS = (NO_SKEW, Skew(50, 2e-4), Skew(10_000, 0.02))


@dataclass(frozen=True, slots=True)
class ClusterOptions(Options):
    """The options of one cluster. Brokers have the ids 1 to `brokers`."""

    replicas: int
    min_isr: int
    members: int
    """Consumers that share a group."""
    rest: int
    """See `pace`. The less clients do, the more faults fit into the time of a run."""
    at_once: int
    """Faults at the same time, and those that last longer beside them."""
    session_timeout_ms: int
    snapshot_bytes: int

    @classmethod
    def draw(cls, rng: Rng) -> ClusterOptions:
        """The options of a seed."""
        brokers = rng.choice((1, 3, 3, 3, 5))
        replicas = rng.choice((min(2, brokers), min(3, brokers), min(3, brokers)))
        latency_max_s = rng.choice((0.0002, 0.002, 0.02))
        return cls(
            is_hopeless=False,
            brokers=brokers,
            replicas=replicas,
            min_isr=rng.randint(1, min(2, replicas)),
            members=rng.choice((0, 1, 2)),
            rest=rng.choice((10, 20, 40)),
            at_once=rng.choice((1, 1, 2)),
            session_timeout_ms=rng.choice((1000, 2000)),
            snapshot_bytes=rng.choice((2048, 1 << 20)),
            skew=rng.choice(_SKEWS),
            topics=rng.randint(1, 2),
            producers=tuple(_style(rng) for _ in range(rng.randint(1, 3))),
            consumers=rng.randint(1, 2),
            durabilities=("fsync",),
            retentions=rng.choice((("none",), ("none",), ("none", "bytes"), ("ms",))),
            churns=rng.random() < 0.3,
            request_timeout_ms=rng.choice((1000, 2000, 10_000)),
            delivery_timeout_ms=rng.choice((4000, 8000, 30_000)),
            max_partition_bytes=rng.choice((512, 8192, 1 << 18)),
            troubles=tuple(rng.sample(TROUBLES, rng.choice((0, 1, 2, 3, 5, len(TROUBLES))))),
            trouble_s=rng.uniform(20, 60),
            trouble_every_s=rng.choice((1.0, 3.0, 6.0)),
            latency_max_s=latency_max_s,
            blocking_max_s=rng.choice((0.0005, 0.005, 0.02)),
            window_bytes=65536 if latency_max_s > 0.01 else rng.choice((8192, 65536)),
            network_segment_bytes=rng.choice((1448, 65536)),
            housekeeping_interval_ms=rng.choice((100, 1000, 5000)),
        )

    @property
    def pace(self) -> float:
        return self.rest

    @property
    def replication_factor(self) -> int:
        return self.replicas

    @property
    def topic_configs(self) -> dict[str, str]:
        return {"min.insync.replicas": str(self.min_isr)}

    @property
    def delays_requests(self) -> bool:
        """A broker that is behind serves a topic that was deleted, and passes requests on late: no
        name is used twice."""
        return True

    def promises(self, acks: Acks) -> bool:
        return acks == "all"

    def may_refuse_start(self, error: Exception) -> bool:
        # A broker that is paused while it starts does not answer itself in time either.
        may_wait = self.brokers > 1 or "pause" in self.troubles
        return may_wait and is_want_of_quorum(error)

    def config(self, host: str, number: int) -> BrokerConfig:
        quorum = ",".join(f"{n + 1}@{host_of(n)}:{BROKER_PORT}" for n in range(self.brokers))
        return BrokerConfig(
            listen=f"{host}:{PORT}",
            insecure_listen=True,
            node_id=number + 1,
            quorum=quorum,
            quorum_wait_ms=5_000,
            broker_session_timeout_ms=self.session_timeout_ms,
            broker_heartbeat_interval_ms=self.session_timeout_ms // 5,
            metadata_snapshot_bytes=self.snapshot_bytes,
            housekeeping_interval_ms=self.housekeeping_interval_ms,
            offsets_topic_partitions=1,
            group_initial_rebalance_delay_ms=0,
            group_min_session_timeout_ms=1_000,
            drain_timeout_ms=1000,
            topic={"retention.ms": "-1"},
        )

    def member(self) -> dict[str, Any]:
        """Settings of consumers that share a group."""
        return {
            **self.consumer(),
            "session_timeout_ms": 3_000,
            "heartbeat_interval_ms": 500,
            "auto_commit": False,
        }


def host_of(number: int) -> str:
    """The address of the machine of a broker."""
    return f"10.0.0.{number + 1}"


def _style(rng: Rng) -> ProducerStyle:
    style = ProducerStyle.draw(rng)
    return replace(style, acks="all") if style.idempotent or rng.random() < 0.5 else style
