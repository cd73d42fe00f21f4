"""Placement: which brokers get the replicas of new partitions.

Leaders go around the brokers. The other replicas of a partition are on the brokers behind its
leader, as many steps further with every round, so that the partitions of a broker that fails find
their next leaders on all others. Each replica goes to a rack with the fewest of the partition, so a
rack that fails takes as few as possible.

Brokers that are out of service get replicas only where those in service are too few, and never the
first: they follow when they are back. So a topic that is created while a broker restarts has as
many replicas as any other.

Source: Kafka's `AdminUtils.assignReplicasToBrokers`, and `StripedReplicaPlacer` for the racks and
for the brokers out of service.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from millrace_server.metadata.image import BrokerRegistration


def place(
    brokers: Sequence[BrokerRegistration], numbers: range, *, replication_factor: int, start: int
) -> list[tuple[int, ...]]:
    """The replicas of each partition, the leader first; `1 <= replication_factor <= brokers`.

    At least one of the brokers is in service. `start` is any number; it says where the round
    begins, so that not every topic begins on the same broker. Of the partitions of one call any two
    brokers in service lead as many, or one more.
    """
    ring = _alternated(broker for broker in brokers if broker.is_active)
    absent = _alternated(broker for broker in brokers if not broker.is_active)
    return [_replicas(ring, absent, start + number, replication_factor) for number in numbers]


def turn_of(brokers: Sequence[BrokerRegistration], leader: int) -> int | None:
    """The `start` with which a broker leads partition 0, None if it is not in service."""
    active = (broker for broker in brokers if broker.is_active)
    ids = [broker.broker_id for broker in _alternated(active)]
    return ids.index(leader) if leader in ids else None


def _replicas(
    ring: Sequence[BrokerRegistration],
    absent: Sequence[BrokerRegistration],
    turn: int,
    replication_factor: int,
) -> tuple[int, ...]:
    count = len(ring)
    first = turn % count
    chosen = [ring[first]]
    steps = max(count - 1, 1)
    rest = [ring[(first + 1 + (turn // count + n) % steps) % count] for n in range(count - 1)]
    rest += [absent[(turn + n) % len(absent)] for n in range(len(absent))]
    used = {chosen[0].rack: 1}
    while len(chosen) < replication_factor:
        following = min(rest, key=lambda b: (not b.is_active, used.get(b.rack, 0)))
        rest.remove(following)
        chosen.append(following)
        used[following.rack] = used.get(following.rack, 0) + 1
    return tuple(broker.broker_id for broker in chosen)


def _alternated(brokers: Iterable[BrokerRegistration]) -> list[BrokerRegistration]:
    """The brokers, one of each rack in turn."""
    racks: dict[str, list[BrokerRegistration]] = {}
    for broker in sorted(brokers, key=lambda b: b.broker_id):
        racks.setdefault(broker.rack or "", []).append(broker)
    rounds = zip_longest(*(racks[name] for name in sorted(racks)))
    return [broker for turn in rounds for broker in turn if broker is not None]
