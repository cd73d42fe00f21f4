"""The replica that a client reads from: the leader, or one in the client's own rack (KIP-392).

A replica in sync has every record below the high watermark, so each of them will do.
"""

from __future__ import annotations

from collections.abc import Mapping

from millrace_server.metadata.image import BrokerRegistration, PartitionRegistration


def read_replica(
    partition: PartitionRegistration,
    brokers: Mapping[int, BrokerRegistration],
    rack: str,
    *,
    number: int,
) -> int | None:
    """The broker to read partition `number` from in a rack; None: the leader.

    It is in sync and in service. Where a rack has several, partitions are spread over them.
    """
    known = brokers.get(partition.leader)
    if known is not None and known.rack == rack:
        return None
    near = [
        broker_id
        for broker_id in sorted(partition.isr)
        if (broker := brokers.get(broker_id)) is not None
        and broker.rack == rack
        and not broker.is_fenced
    ]
    return near[number % len(near)] if near else None
