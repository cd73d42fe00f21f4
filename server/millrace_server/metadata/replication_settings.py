"""The settings of a topic that decide about its replicas, as controller and leader read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millrace_server.metadata.image import Topic
from millrace_server.topic_config import TopicConfig

MIN_ISR = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"
DURABILITY = "durability"
SHARED_SETTINGS = (DURABILITY, MIN_ISR)
"""Settings that controller, leader and followers must read alike. The defaults of two brokers may
differ, so a topic with several replicas has them written down."""
REPLICAS_FOR_MIN_ISR = 3
"""From so many replicas on, acks=all waits for two of them by default: one may fail, and no record
that was acked is on one disk alone."""


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """`is_synced`: an ack means that a record is on the disk, so a kill or power cut loses none."""

    min_isr: int
    allows_unclean: bool
    is_synced: bool


def replication_settings(topic: Topic, defaults: Mapping[str, str]) -> ReplicationSettings:
    """The settings in force for a topic; `defaults` are those of this broker."""
    config = TopicConfig(topic.configs, defaults)
    return ReplicationSettings(
        config.number(MIN_ISR),
        config.text(UNCLEAN_ELECTION) == "true",
        config.text(DURABILITY) == "fsync",
    )


def with_shared_settings(
    own: Mapping[str, str], defaults: Mapping[str, str], *, replication_factor: int
) -> dict[str, str]:
    """A topic's own settings, the shared ones among them if it has several replicas."""
    written = dict(own)
    if replication_factor > 1:
        config = TopicConfig(own, defaults)
        for name in SHARED_SETTINGS:
            written.setdefault(name, config.text(name))
        if config.source(MIN_ISR) == "default" and replication_factor >= REPLICAS_FOR_MIN_ISR:
            written[MIN_ISR] = "2"
    return written
