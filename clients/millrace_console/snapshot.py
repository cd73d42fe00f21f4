"""The cluster at one time, as far as the pages show it.

Owns the questions to the brokers. Every page is made from the last snapshot, so that the brokers
answer the same number of questions for one user as for many. A part that cannot be read is left
out, and `errors` says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from millrace.admin import Admin, TopicDescription
from millrace.brokers import ClusterDescription, LogDirectory, QuorumDescription
from millrace.errors import MillraceError
from millrace.groups import CommittedOffset, GroupDescription
from millrace.records import TopicPartition
from millrace.statistics import BrokerStatistics

T = TypeVar("T")
TOPICS_MAX = 500
GROUPS_MAX = 200
PARTITIONS_MAX = 5_000
"""Partitions whose offsets are read."""
_AT_ONCE = 50


@dataclass
class Snapshot:
    """What was read, at `read_ms`. A topic or group beyond the bounds is counted, not read."""

    read_ms: int
    cluster: ClusterDescription | None = None
    quorum: QuorumDescription | None = None
    statistics: dict[int, BrokerStatistics] = field(default_factory=dict)
    topics: dict[str, TopicDescription] = field(default_factory=dict)
    topic_count: int = 0
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    sizes: dict[TopicPartition, int] = field(default_factory=dict)
    """Bytes of the leader's replica."""
    groups: dict[str, GroupDescription] = field(default_factory=dict)
    group_count: int = 0
    committed: dict[str, Mapping[TopicPartition, CommittedOffset]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def lag(self, group: str, where: TopicPartition) -> int | None:
        """Offsets that a group has not committed in a partition; None if that is not known."""
        committed = self.committed.get(group, {}).get(where)
        end = self.ends.get(where)
        return None if committed is None or end is None else max(0, end - committed.offset)

    def total_lag(self, group: str) -> int | None:
        """The sum over the partitions where it is known; None if there is none."""
        known = [self.lag(group, where) for where in self.committed.get(group, {})]
        found = [lag for lag in known if lag is not None]
        return sum(found) if found else None


async def read_snapshot(admin: Admin, now_ms: int) -> Snapshot:
    """Reads everything. Raises nothing that a broker or a connection causes."""
    found = Snapshot(now_ms)
    for part in (_read_cluster, _read_topics, _read_offsets, _read_groups):
        try:
            await part(admin, found)
        except MillraceError as error:
            found.errors.append(str(error))
            if found.cluster is None:
                # No broker answers: the other questions would wait as long.
                break
    return found


async def _read_cluster(admin: Admin, found: Snapshot) -> None:
    found.cluster = cluster = await admin.describe_cluster()
    for broker in cluster.brokers:
        try:
            found.statistics[broker.node_id] = await admin.describe_statistics(
                broker.node_id, prefix="millrace_appended"
            )
        except MillraceError as error:
            found.errors.append(f"broker {broker.node_id}: {error}")
    found.quorum = await admin.describe_quorum()


async def _read_topics(admin: Admin, found: Snapshot) -> None:
    names = await admin.list_topics()
    found.topic_count = len(names)
    for outcome in await admin.describe_topics(names[:TOPICS_MAX]):
        if outcome.value is not None:
            found.topics[outcome.name] = outcome.value


async def _read_offsets(admin: Admin, found: Snapshot) -> None:
    leaders = {
        TopicPartition(topic.name, each.partition): each.leader
        for topic in found.topics.values()
        for each in topic.partitions
        if each.leader is not None
    }
    wanted = list(leaders)[:PARTITIONS_MAX]
    if not wanted:
        return
    latest = await admin.list_offsets(dict.fromkeys(wanted, "latest"))
    found.ends = {where: each.offset for where, each in latest.items()}
    earliest = await admin.list_offsets(dict.fromkeys(wanted, "earliest"))
    found.starts = {where: each.offset for where, each in earliest.items()}
    for node_id in sorted({each for each in leaders.values() if each is not None}):
        try:
            directories = await admin.describe_log_dirs(found.topics, broker=node_id)
        except MillraceError as error:
            found.errors.append(f"broker {node_id}: {error}")
        else:
            _take_sizes(directories, leaders, found)


def _take_sizes(
    directories: Iterable[LogDirectory],
    leaders: Mapping[TopicPartition, int | None],
    found: Snapshot,
) -> None:
    for directory in directories:
        for where, size in directory.partitions.items():
            if leaders.get(where) == directory.node_id and size.error is None:
                found.sizes[where] = size.size_bytes


async def _read_groups(admin: Admin, found: Snapshot) -> None:
    listed = await admin.list_groups()
    found.group_count = len(listed)
    names = [each.group for each in listed][:GROUPS_MAX]
    for some in _chunks(names, _AT_ONCE):
        for name, outcome in (await admin.describe_groups(some)).items():
            if outcome.value is not None:
                found.groups[name] = outcome.value
        offsets = await asyncio.gather(*map(admin.list_group_offsets, some))
        found.committed.update(zip(some, offsets, strict=True))


def _chunks(items: Sequence[T], size: int) -> Iterable[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))
