"""The image: what replaying the metadata log from its start gives.

`replay` is the only way to change it, at restart as in normal running, so both give the same
image. Holds no rule of what may change; that is `controller`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from millrace_server.metadata.records import (
    ClusterCreated,
    MetadataRecord,
    PartitionsAdded,
    ProducerIdsReserved,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
    UnreadableMetadata,
)


@dataclass(slots=True)
class Topic:
    """One topic as the metadata has it."""

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    configs: dict[str, str]


@dataclass(slots=True)
class ClusterImage:
    """Everything the metadata log says.

    Invariant: `topics` (by name) and `names` (id to name) hold the same topics; a topic id is in
    `names` or in `deleted`, never in both.
    """

    cluster_id: str = ""
    topics: dict[str, Topic] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    next_producer_id: int = 0

    def replay(self, record: MetadataRecord) -> None:
        """Takes the next record of the log. Raises `UnreadableMetadata` when it cannot follow."""
        match record:
            case ClusterCreated():
                self.cluster_id = record.cluster_id
            case TopicCreated():
                if record.name in self.topics:
                    raise UnreadableMetadata(f"topic {record.name!r} is created twice")
                self.names[record.topic_id] = record.name
                self.topics[record.name] = Topic(
                    record.name,
                    record.topic_id,
                    record.partitions,
                    record.replication_factor,
                    dict(record.configs),
                )
            case PartitionsAdded():
                self._topic(record.topic_id).partitions = record.partitions
            case TopicConfigChanged():
                self._topic(record.topic_id).configs = dict(record.configs)
            case TopicDeleted():
                del self.topics[self._topic(record.topic_id).name]
                del self.names[record.topic_id]
                self.deleted.add(record.topic_id)
            case ProducerIdsReserved():
                self.next_producer_id = record.next_producer_id

    def _topic(self, topic_id: str) -> Topic:
        name = self.names.get(topic_id)
        if name is None:
            raise UnreadableMetadata(f"a record changes topic {topic_id}, which does not exist")
        return self.topics[name]
