"""Planning on the driver: asks the brokers what the topics hold, and makes ranges of it.

Owns the questions. The answers become ranges in `ranges`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from millrace.admin import TopicDescription
from millrace.records import TopicPartition
from millrace.sync import Admin
from millrace_spark.bounds import AtTime, Bound
from millrace_spark.options import ReadOptions
from millrace_spark.patience import client_options, started
from millrace_spark.ranges import LogExtent, OffsetRange, check_named_partitions, plan_ranges


def plan(options: ReadOptions) -> list[OffsetRange]:
    """What each task of a read is to read.

    Raises `ConnectionFailed`, `UnknownTopicOrPartition`, `DataLost` and `OptionError`.
    """
    admin = started(
        lambda: Admin(options.servers, **client_options(options)), deadline_ms=options.deadline_ms
    )
    with closing(admin):
        topics = [outcome.unwrap() for outcome in admin.describe_topics(options.topics)]
        check_named_partitions(
            (("start", options.start), ("end", options.end)),
            {topic.name: len(topic.partitions) for topic in topics},
        )
        return plan_ranges(
            _extents(admin, topics, options),
            start=options.start,
            end=options.end,
            on_data_loss=options.on_data_loss,
            max_offsets_per_partition=options.max_offsets_per_partition,
        )


def _extents(
    admin: Admin, topics: Iterable[TopicDescription], options: ReadOptions
) -> dict[TopicPartition, LogExtent]:
    topic_ids = {
        TopicPartition(topic.name, partition.partition): str(topic.topic_id)
        for topic in topics
        for partition in topic.partitions
    }
    earliest = admin.list_offsets(dict.fromkeys(topic_ids, "earliest"))
    latest = admin.list_offsets(dict.fromkeys(topic_ids, "latest"))
    start_found = _find(admin, topic_ids, options.start)
    end_found = _find(admin, topic_ids, options.end)
    return {
        where: LogExtent(
            topic_id,
            earliest[where].offset,
            latest[where].offset,
            start_found.get(where),
            end_found.get(where),
        )
        for where, topic_id in topic_ids.items()
    }


def _find(
    admin: Admin, wheres: Iterable[TopicPartition], bound: Bound
) -> dict[TopicPartition, int]:
    """The offset of the first record at or after a bound that is a time, -1 for none."""
    if not isinstance(bound, AtTime):
        return {}
    answers = admin.list_offsets(dict.fromkeys(wheres, bound.timestamp_ms))
    return {where: answer.offset for where, answer in answers.items()}
