"""Placement: which brokers get the replicas of new partitions.

Leaders go around the brokers, and the replicas of a partition are on consecutive ones. Neighbours
are in different racks as far as there are racks, so a rack that fails takes one replica of a
partition (Kafka's `AdminUtils.assignReplicasToBrokers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from millrace_server.metadata.image import BrokerRegistration


def place(
    brokers: Sequence[BrokerRegistration], numbers: range, *, replication_factor: int, start: int
) -> list[tuple[int, ...]]:
    """The replicas of each partition, the leader first; `1 <= replication_factor <= brokers`.

    `start` is any number; it says where the round begins, so that not every topic begins on the
    same broker.
    """
    ids = _alternated(brokers)
    return [
        tuple(ids[(start + number + n) % len(ids)] for n in range(replication_factor))
        for number in numbers
    ]


def _alternated(brokers: Sequence[BrokerRegistration]) -> list[int]:
    """Broker ids, one of each rack in turn."""
    racks: dict[str, list[int]] = {}
    for broker in sorted(brokers, key=lambda b: b.broker_id):
        racks.setdefault(broker.rack or "", []).append(broker.broker_id)
    rounds = zip_longest(*(racks[name] for name in sorted(racks)))
    return [broker_id for turn in rounds for broker_id in turn if broker_id is not None]
