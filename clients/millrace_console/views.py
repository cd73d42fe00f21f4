"""A snapshot as objects of JSON, one for each page.

Owns the names of their fields. A number that is not known is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millrace.admin import PartitionDescription, TopicDescription
from millrace.brokers import ConfigValue
from millrace.groups import GroupDescription
from millrace.records import TopicPartition
from millrace_console.snapshot import Snapshot

CLUSTER_RECORDS = "cluster records"
CLUSTER_BYTES = "cluster bytes"
UNHEALTHY_MAX = 200
MEMBERS_MAX = 500


def topic_records(topic: str) -> str:
    """The name of a topic's series of records per second."""
    return f"records {topic}"


def topic_bytes(topic: str) -> str:
    """The name of a topic's series of bytes per second."""
    return f"bytes {topic}"


def group_lag(group: str) -> str:
    """The name of a group's series of lag."""
    return f"lag {group}"


def counters(found: Snapshot) -> dict[str, float]:
    """The counters of a snapshot, by the series that is their rate."""
    counted: dict[str, float] = {}
    if found.statistics:
        for name, metric in (
            (CLUSTER_RECORDS, "millrace_appended_records_total"),
            (CLUSTER_BYTES, "millrace_appended_bytes_total"),
        ):
            counted[name] = sum(
                each.metrics[metric].value()
                for each in found.statistics.values()
                if metric in each.metrics
            )
    for topic in found.topics.values():
        wheres = [TopicPartition(topic.name, each.partition) for each in topic.partitions]
        if all(where in found.ends for where in wheres):
            counted[topic_records(topic.name)] = sum(found.ends[where] for where in wheres)
        if all(where in found.sizes for where in wheres):
            counted[topic_bytes(topic.name)] = sum(found.sizes[where] for where in wheres)
    return counted


def cluster_view(found: Snapshot) -> dict[str, Any]:
    """The page of the cluster."""
    cluster, quorum = found.cluster, found.quorum
    unhealthy = [
        _partition(found, topic, each)
        for topic in found.topics.values()
        for each in topic.partitions
        if each.is_under_replicated
    ]
    return {
        **_head(found),
        "cluster_id": None if cluster is None else cluster.cluster_id,
        "controller": None if quorum is None else quorum.leader,
        "brokers": [
            {
                "node_id": each.node_id,
                "address": f"{each.host}:{each.port}",
                "rack": each.rack,
                **_broker_statistics(found, each.node_id),
            }
            for each in (cluster.brokers if cluster is not None else ())
        ],
        "quorum": [
            {
                "node_id": each.node_id,
                "voter": each.is_voter,
                "end_offset": each.end_offset,
                "lag": quorum.lag(each),
                "fetched_ms": each.fetched_ms,
            }
            for each in (quorum.replicas if quorum is not None else ())
        ]
        if quorum is not None
        else [],
        "topics": found.topic_count,
        "groups": found.group_count,
        "partitions": sum(len(each.partitions) for each in found.topics.values()),
        "unhealthy_count": len(unhealthy),
        "unhealthy": unhealthy[:UNHEALTHY_MAX],
    }


def topics_view(found: Snapshot, rates: Mapping[str, float | None]) -> dict[str, Any]:
    """The list of topics."""
    return {
        **_head(found),
        "left_out": found.topic_count - len(found.topics),
        "topics": [_topic_row(found, each, rates) for each in found.topics.values()],
    }


def topic_view(
    found: Snapshot,
    topic: TopicDescription,
    rates: Mapping[str, float | None],
    configs: Mapping[str, ConfigValue],
) -> dict[str, Any]:
    """One topic: its partitions, their replicas and offsets, and its settings."""
    return {
        **_head(found),
        **_topic_row(found, topic, rates),
        "topic_id": str(topic.topic_id),
        "partition_list": [_partition(found, topic, each) for each in topic.partitions],
        "configs": configs_view(configs),
    }


def groups_view(found: Snapshot) -> dict[str, Any]:
    """The list of groups."""
    return {
        **_head(found),
        "left_out": found.group_count - len(found.groups),
        "groups": [
            {
                "group": name,
                "state": each.state,
                "members": len(each.members),
                "assignor": each.assignor,
                "lag": found.total_lag(name),
            }
            for name, each in found.groups.items()
        ],
    }


def group_view(found: Snapshot, group: GroupDescription) -> dict[str, Any]:
    """One group: its members, and the lag of each partition."""
    owners = {where: m.member_id for m in group.members for where in m.assignment}
    committed = found.committed.get(group.group, {})
    return {
        **_head(found),
        "group": group.group,
        "state": group.state,
        "generation": group.generation,
        "assignor": group.assignor,
        "lag": found.total_lag(group.group),
        "members": [
            {
                "member_id": each.member_id,
                "client_id": each.client_id,
                "instance_id": each.instance_id,
                "host": each.client_host,
                "topics": each.topics,
                "assignment": [str(where) for where in each.assignment],
            }
            for each in group.members[:MEMBERS_MAX]
        ],
        "partitions": [
            {
                "topic": where.topic,
                "partition": where.partition,
                "committed": committed[where].offset if where in committed else None,
                "end": found.ends.get(where),
                "lag": found.lag(group.group, where),
                "member": owners.get(where),
            }
            for where in sorted({*committed, *owners})
        ],
    }


def configs_view(configs: Mapping[str, ConfigValue]) -> list[dict[str, Any]]:
    """Settings in force, by name."""
    return [
        {
            "name": name,
            "value": each.value,
            "source": each.source,
            "is_default": each.is_default,
            "doc": each.doc,
        }
        for name, each in sorted(configs.items())
    ]


def _head(found: Snapshot) -> dict[str, Any]:
    return {"read_ms": found.read_ms, "errors": found.errors}


def _broker_statistics(found: Snapshot, node_id: int) -> dict[str, Any]:
    statistics = found.statistics.get(node_id)
    if statistics is None:
        return {"version": None, "uptime_ms": None}
    return {"version": statistics.software_version, "uptime_ms": statistics.uptime_ms}


def _topic_row(
    found: Snapshot, topic: TopicDescription, rates: Mapping[str, float | None]
) -> dict[str, Any]:
    wheres = [TopicPartition(topic.name, each.partition) for each in topic.partitions]
    return {
        "topic": topic.name,
        "partitions": len(topic.partitions),
        "offsets": sum(found.ends.get(each, 0) - found.starts.get(each, 0) for each in wheres),
        "size_bytes": sum(found.sizes.get(each, 0) for each in wheres),
        "records_per_s": rates.get(topic_records(topic.name)),
        "bytes_per_s": rates.get(topic_bytes(topic.name)),
    }


def _partition(
    found: Snapshot, topic: TopicDescription, each: PartitionDescription
) -> dict[str, Any]:
    where = TopicPartition(topic.name, each.partition)
    return {
        "topic": topic.name,
        "partition": each.partition,
        "leader": each.leader,
        "replicas": each.replicas,
        "isr": each.isr,
        "start": found.starts.get(where),
        "end": found.ends.get(where),
        "size_bytes": found.sizes.get(where),
    }
