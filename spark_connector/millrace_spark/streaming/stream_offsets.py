"""The offsets of a stream, as Spark keeps them in a checkpoint.

Owns the document: that of Spark's Kafka source, with one key more. Spark compares two documents as
JSON text, so equal offsets must be equal text: the order of keys is fixed.

    {"#topic_ids": {"clicks": "1b4e..."}, "clicks": {"0": 23, "1": 7}, "views": {"0": 5}}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from millrace.records import TopicPartition
from millrace_spark.errors import OptionError
from millrace_spark.options.bounds import TOPIC_IDS

Document = dict[str, dict[str, Any]]
"""Topic to partition to offset, and `TOPIC_IDS` to topic to id."""


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """The next offset to read in each partition, and the ids of the topics.

    A topic has no id in a checkpoint that Spark's Kafka source wrote.
    """

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]

    def document(self) -> Document:
        """The document that Spark stores: topics by name, partitions by number.

        >>> StreamOffsets({TopicPartition("clicks", 0): 23}, {"clicks": "1b4e"}).document()
        {'#topic_ids': {'clicks': '1b4e'}, 'clicks': {'0': 23}}
        """
        found: Document = {
            TOPIC_IDS: {name: self.topic_ids[name] for name in sorted(self.topic_ids)}
        }
        for where in sorted(self.offsets):
            found.setdefault(where.topic, {})[str(where.partition)] = self.offsets[where]
        return found

    def only(self, selects: Callable[[str, int], bool]) -> StreamOffsets:
        """The offsets of the partitions for which `selects(topic, partition)` holds."""
        offsets = {where: offset for where, offset in self.offsets.items() if selects(*where)}
        topics = {where.topic for where in offsets}
        ids = {topic: found for topic, found in self.topic_ids.items() if topic in topics}
        return StreamOffsets(offsets, ids)

    def same_incarnation(self, other: StreamOffsets) -> Iterable[TopicPartition]:
        """The partitions of both, in order, whose topics have the same id in both."""
        for where in sorted(self.offsets.keys() & other.offsets.keys()):
            mine, theirs = self.topic_ids.get(where.topic), other.topic_ids.get(where.topic)
            if mine is None or theirs is None or mine == theirs:
                yield where


def parse_document(document: Mapping[str, Any]) -> StreamOffsets:
    """The offsets in a document of a checkpoint. Raises `OptionError`.

    >>> parse_document({"clicks": {"0": 23}})
    StreamOffsets(offsets={TopicPartition(topic='clicks', partition=0): 23}, topic_ids={})
    """
    offsets: dict[TopicPartition, int] = {}
    topic_ids = document.get(TOPIC_IDS, {})
    if not isinstance(topic_ids, dict) or not all(type(each) is str for each in topic_ids.values()):
        raise _unreadable(f"{TOPIC_IDS} is {topic_ids!r}")
    for topic, partitions in document.items():
        if topic == TOPIC_IDS:
            continue
        if not isinstance(partitions, dict):
            raise _unreadable(f"{topic} has {partitions!r} in place of its partitions")
        for name, offset in partitions.items():
            if not (name.isascii() and name.isdigit()) or type(offset) is not int or offset < 0:
                raise _unreadable(f"{topic} has the offset {offset!r} of partition {name!r}")
            offsets[TopicPartition(topic, int(name))] = offset
    return StreamOffsets(offsets, dict(topic_ids))


def _unreadable(what: str) -> OptionError:
    return OptionError(
        "checkpointLocation",
        f"{what}; it is not the checkpoint of a stream of topics: give this stream its own",
    )
