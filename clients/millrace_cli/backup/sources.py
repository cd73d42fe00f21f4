"""What a cluster has to be backed up: the consistent cut, and each topic with its logs.

Owns the order of the questions, which makes the cut consistent:

    1. the ends of the partitions of `__consumer_offsets`
    2. the topics with their ids and settings
    3. the ends of all other partitions

A group commits an offset after it has read up to it. So a commit that lies before an end of 1 names
a topic that is in 2 and an offset that is not behind its end in 3. Each end is a high watermark:
every record that was acknowledged by all replicas in sync before the backup began lies before it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from millrace.admin import Admin, TopicDescription
from millrace.errors import NotAuthorized, OffsetOutOfRange, UnknownTopicOrPartition
from millrace.records import TopicPartition
from millrace_cli.backup.manifest import Backup
from millrace_cli.backup.plan import SourceLog
from millrace_cli.each_broker import ask_each
from millrace_cli.exits import CommandError
from millrace_server.group.records import OFFSETS_TOPIC
from millrace_server.quorum.metadata_log import METADATA_TOPIC

SIZE_ATTEMPTS = 10
"""Retention may delete a range while its size is asked for."""
_WHOLE = 2**62
"""More bytes than any range has: the range is one piece."""


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """A topic of the cluster: its own settings, all settings in force, and its logs by number."""

    description: TopicDescription
    configs: Mapping[str, str]
    segment_bytes: int
    logs: tuple[SourceLog, ...]


async def find_topics(admin: Admin, before: Backup | None) -> list[SourceTopic]:
    """The topics of a cluster at a consistent cut.

    Raises the errors of the connections, and of a partition without a leader; `CommandError` for a
    topic of the backup before that may not be seen any more.
    """
    ends = await _ends(admin, await _described(admin, [OFFSETS_TOPIC]))
    topics = await _described(admin, await admin.list_topics(internal=True))
    await _check_none_is_hidden(admin, before, {topic.name for topic in topics})
    others = [topic for topic in topics if topic.name != OFFSETS_TOPIC]
    ends |= await _ends(admin, others)
    found = []
    for topic in topics:
        if wheres := [where for where in _wheres(topic) if where in ends]:
            try:
                found.append(await _source(admin, topic, {w: ends[w] for w in wheres}, before))
            except UnknownTopicOrPartition:
                # It was deleted since: the next backup would not have it either.
                continue
    return found


async def hidden_topics(admin: Admin, seen: Collection[str]) -> list[NotAuthorized]:
    """Why the client may not see topics that the cluster has beside those that it has seen.

    None where it may not look at the data directories, which have the topics of everyone.
    """
    brokers = (await admin.describe_cluster()).brokers
    try:
        answers = await ask_each(brokers, lambda node_id: admin.describe_log_dirs(broker=node_id))
    except NotAuthorized:
        return []
    directories = [directory for answer in answers for directory in answer.value or ()]
    names = {where.topic for directory in directories for where in directory.partitions}
    return await _denials(admin, names.difference(seen, [METADATA_TOPIC]))


async def _check_none_is_hidden(admin: Admin, before: Backup | None, seen: Collection[str]) -> None:
    names = {topic.name for topic in before.topics} if before else set()
    if denials := await _denials(admin, names.difference(seen)):
        raise CommandError(
            f"{denials[0]}. The backup has this topic and would lose it: give the right, or name a "
            "new directory"
        )


async def _denials(admin: Admin, names: Collection[str]) -> list[NotAuthorized]:
    """The errors of the topics that may not be seen, whether they are there or not."""
    outcomes = await admin.describe_topics(sorted(names))
    return [each.error for each in outcomes if isinstance(each.error, NotAuthorized)]


async def _source(
    admin: Admin,
    topic: TopicDescription,
    ends: Mapping[TopicPartition, int],
    before: Backup | None,
) -> SourceTopic:
    values = await admin.describe_configs(topic.name)
    saved = None if before is None else before.topic_of(topic.topic_id)
    covered = {
        TopicPartition(topic.name, number): partition.end_offset
        for number, partition in enumerate(saved.partitions if saved else ())
    }
    starts, sizes = await _sizes(admin, ends, {})
    _, new_sizes = await _sizes(admin, ends, covered)
    return SourceTopic(
        topic,
        {name: each.value for name, each in values.items() if each.source == "topic"},
        int(values["segment.bytes"].value),
        tuple(
            SourceLog(
                starts[where],
                max(end, starts[where]),
                sizes[where],
                new_sizes[where],
                "compact" in values["cleanup.policy"].value.split(","),
                int(values["delete.retention.ms"].value),
            )
            for where, end in ends.items()
        ),
    )


async def _sizes(
    admin: Admin, ends: Mapping[TopicPartition, int], begins: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Where the logs start, and what they take from there, or from `begins`, to their ends."""
    for attempt in range(SIZE_ATTEMPTS):
        earliest = await admin.list_offsets(dict.fromkeys(ends, "earliest"))
        starts = {where: answer.offset for where, answer in earliest.items()}
        asked: dict[TopicPartition | tuple[str, int], tuple[int, int]] = {}
        for where, end in ends.items():
            begin = max(starts[where], begins.get(where, 0))
            if begin < end:
                asked[where] = (begin, end)
        try:
            pieces = await admin.split_ranges(asked, piece_bytes=_WHOLE)
        except OffsetOutOfRange:
            if attempt == SIZE_ATTEMPTS - 1:
                raise
            continue
        return starts, {
            where: sum(piece.size_bytes for piece in pieces.get(where, ())) for where in ends
        }
    raise AssertionError("the last attempt returns or raises")


async def _described(admin: Admin, names: list[str]) -> list[TopicDescription]:
    """Those of the topics that are there."""
    outcomes = await admin.describe_topics(names)
    return [o.unwrap() for o in outcomes if not isinstance(o.error, UnknownTopicOrPartition)]


async def _ends(admin: Admin, topics: list[TopicDescription]) -> dict[TopicPartition, int]:
    wheres = [where for topic in topics for where in _wheres(topic)]
    answers = await admin.list_offsets(dict.fromkeys(wheres, "latest")) if wheres else {}
    return {where: answer.offset for where, answer in answers.items()}


def _wheres(topic: TopicDescription) -> list[TopicPartition]:
    return [TopicPartition(topic.name, p.partition) for p in topic.partitions]
