"""The requests of an import to the brokers: extents of logs, offsets of the group, and pieces.

Owns these calls. `import_plan` decides from the answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass

from millrace.config import parse_servers
from millrace.errors import ConfigError
from millrace.records import TopicPartition
from millrace.sync import Admin
from millrace_spark.options.credentials import NO_CREDENTIALS, Credentials
from millrace_spark.options.read_options import ReadOptions, parse_read_options
from millrace_spark.pipeline.errors import ImportRefused
from millrace_spark.pipeline.import_plan import Committed, Extent
from millrace_spark.pipeline.ledger import Span
from millrace_spark.reading.planner import plan
from millrace_spark.reading.ranges import OffsetRange
from millrace_spark.retry import start_admin

PARTITIONS_MAX = 100_000
"""Of all topics of an import; one request names all of them."""
_ANY = {TopicPartition("any", 0): Span("", 0, 1)}


@dataclass(frozen=True, slots=True)
class TopicLog:
    """The topics of an import on their brokers; each call opens and closes a connection."""

    servers: str
    deadline_ms: int = 30_000
    max_partition_bytes: str = "128m"
    skip_lost: bool = False
    credentials: Credentials = NO_CREDENTIALS

    def __post_init__(self) -> None:
        """Raises `ConfigError`."""
        parse_servers(self.servers)
        self.read_options(_ANY)

    def read_options(self, spans: Mapping[TopicPartition, Span]) -> ReadOptions:
        """The options of a read of those spans. Raises `ConfigError`."""
        partitions: dict[str, list[int]] = {}
        starts: dict[str, dict[str, int]] = {}
        ends: dict[str, dict[str, int]] = {}
        for (topic, partition), span in spans.items():
            partitions.setdefault(topic, []).append(partition)
            starts.setdefault(topic, {})[str(partition)] = span.start_offset
            ends.setdefault(topic, {})[str(partition)] = span.end_offset
        return parse_read_options(
            {
                "millrace.servers": self.servers,
                "assign": json.dumps(partitions),
                "startingOffsets": json.dumps(starts),
                "endingOffsets": json.dumps(ends),
                "failOnDataLoss": "false" if self.skip_lost else "true",
                "maxPartitionBytes": self.max_partition_bytes,
                "deadlineMs": str(self.deadline_ms),
                "includeHeaders": "true",
                **self.credentials.options(),
            },
            is_stream=False,
        )

    def extents(self, topics: Iterable[str]) -> dict[TopicPartition, Extent]:
        """The log of every partition of those topics.

        Raises `UnknownTopicOrPartition`, `ConnectionFailed`.
        """
        with closing(self._admin()) as admin:
            found = [outcome.unwrap() for outcome in admin.describe_topics(topics)]
            topic_ids = {
                TopicPartition(topic.name, each.partition): str(topic.topic_id)
                for topic in found
                for each in topic.partitions
            }
            if len(topic_ids) > PARTITIONS_MAX:
                raise ConfigError(
                    f"the topics have {len(topic_ids)} partitions, and one import takes at most "
                    f"{PARTITIONS_MAX}: name fewer topics"
                )
            earliest = admin.list_offsets(dict.fromkeys(topic_ids, "earliest"))
            latest = admin.list_offsets(dict.fromkeys(topic_ids, "latest"))
        return {
            where: Extent(topic_id, earliest[where].offset, latest[where].offset)
            for where, topic_id in topic_ids.items()
        }

    def committed(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        """The group's committed offsets. Raises `ImportRefused` for a group with members."""
        with closing(self._admin()) as admin:
            (described,) = admin.describe_groups([group]).values()
            if described.unwrap().members:
                raise ImportRefused(
                    f"group {group} has {len(described.unwrap().members)} members, which commit "
                    "their own offsets: stop them, or give another group with --group"
                )
            found = admin.list_group_offsets(group, partitions)
        return {where: Committed(each.offset, each.metadata) for where, each in found.items()}

    def commit(self, group: str, spans: Mapping[TopicPartition, Span], metadata: str) -> None:
        """Commits the ends of the spans for the group. Raises the broker's errors.

        Skips a topic that was deleted, or deleted and created again.
        """
        with closing(self._admin()) as admin:
            outcomes = admin.describe_topics({where.topic for where in spans})
            ids = {each.name: str(each.value.topic_id) for each in outcomes if each.value}
            offsets = {
                where: (span.end_offset, metadata)
                for where, span in spans.items()
                if ids.get(where.topic) == span.topic_id
            }
            if not offsets:
                return
            for outcome in admin.alter_group_offsets(group, offsets).values():
                outcome.unwrap()

    def split(self, spans: Mapping[TopicPartition, Span]) -> tuple[OffsetRange, ...]:
        """The spans in ranges of about equal bytes, one for each task."""
        wanted = {where: span for where, span in spans.items() if len(span)}
        return tuple(plan(self.read_options(wanted))) if wanted else ()

    def _admin(self) -> Admin:
        return start_admin(self.servers, self.credentials, deadline_ms=self.deadline_ms)
