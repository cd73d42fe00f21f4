"""Kafka's names of the broker's settings, where Kafka has the same setting."""

from __future__ import annotations

from collections.abc import Mapping

KAFKA_NAMES: Mapping[str, str] = {
    "auto_create_topics": "auto.create.topics.enable",
    "broker_heartbeat_interval_ms": "broker.heartbeat.interval.ms",
    "broker_session_timeout_ms": "broker.session.timeout.ms",
    "data": "log.dirs",
    "group_initial_rebalance_delay_ms": "group.initial.rebalance.delay.ms",
    "group_max_session_timeout_ms": "group.max.session.timeout.ms",
    "group_max_size": "group.max.size",
    "group_min_session_timeout_ms": "group.min.session.timeout.ms",
    "node_id": "node.id",
    "offset_metadata_max_bytes": "offset.metadata.max.bytes",
    "offsets_retention_minutes": "offsets.retention.minutes",
    "offsets_topic_partitions": "offsets.topic.num.partitions",
    "partitions": "num.partitions",
    "rack": "broker.rack",
    "replication_factor": "default.replication.factor",
    "topic.cleanup.policy": "log.cleanup.policy",
    "topic.compression.type": "compression.type",
    "topic.delete.retention.ms": "log.cleaner.delete.retention.ms",
    "topic.index.interval.bytes": "log.index.interval.bytes",
    "topic.max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "topic.max.message.bytes": "message.max.bytes",
    "topic.message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "topic.message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "topic.message.timestamp.type": "log.message.timestamp.type",
    "topic.min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "topic.min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "topic.min.insync.replicas": "min.insync.replicas",
    "topic.retention.bytes": "log.retention.bytes",
    "topic.retention.ms": "log.retention.ms",
    "topic.segment.bytes": "log.segment.bytes",
    "topic.segment.ms": "log.roll.ms",
    "topic.unclean.leader.election.enable": "unclean.leader.election.enable",
}


def kafka_name(setting: str) -> str:
    """Kafka's name of a setting, or the own one where Kafka has none."""
    return KAFKA_NAMES.get(setting, setting)
