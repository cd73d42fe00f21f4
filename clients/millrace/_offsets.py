"""Asks the leaders of partitions for offsets: the ends of a log, and points in time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from millrace._cluster import Cluster
from millrace.errors import MillraceError, broker_error
from millrace.records import TopicPartition
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResult,
)


async def list_offsets(
    cluster: Cluster, questions: Mapping[TopicPartition, int], *, timeout_ms: int
) -> dict[TopicPartition, ListOffsetsResult]:
    """The answer for each `(partition, timestamp_ms)`; -1 is the end and -2 the beginning.

    Follows leaders and tries again until `timeout_ms` is over. Raises the error of a partition,
    or the last one that stood in the way.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    found: dict[TopicPartition, ListOffsetsResult] = {}
    unanswered = dict(questions)
    attempt = 0
    while True:
        await _learn(cluster, unanswered)
        error = await _ask_leaders(cluster, unanswered, found, deadline)
        for where in found:
            unanswered.pop(where, None)
        if not unanswered:
            return found
        delay_ms = cluster.backoff_ms(attempt)
        if error is not None and (not error.retriable or loop.time() + delay_ms / 1000 >= deadline):
            raise error
        await asyncio.sleep(delay_ms / 1000)
        attempt += 1
        await cluster.refresh({where.topic for where in unanswered})


async def _learn(cluster: Cluster, unanswered: Mapping[TopicPartition, int]) -> None:
    unknown = dict.fromkeys(
        where.topic for where in unanswered if cluster.partition_count(where.topic) is None
    )
    if unknown:
        await cluster.await_topics(unknown)
    for where in unanswered:
        count = cluster.partition_count(where.topic)
        if count is not None and not 0 <= where.partition < count:
            raise broker_error(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no such partition: {where.topic} has {count}",
                about=str(where),
            )


async def _ask_leaders(
    cluster: Cluster,
    unanswered: Mapping[TopicPartition, int],
    found: dict[TopicPartition, ListOffsetsResult],
    deadline: float,
) -> MillraceError | None:
    """Asks each leader once, all at the same time; fills `found`, returns an error if any."""
    by_leader: dict[int, list[ListOffsetsPartition]] = {}
    error: MillraceError | None = None
    for where, timestamp_ms in unanswered.items():
        leader = cluster.leader(*where)
        if leader is None:
            error = broker_error(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "nobody leads it now", about=str(where)
            )
        else:
            question = ListOffsetsPartition(*where, timestamp_ms)
            by_leader.setdefault(leader.node_id, []).append(question)
    answers = await asyncio.gather(
        *(_ask(cluster, node_id, tuple(asked), deadline) for node_id, asked in by_leader.items())
    )
    for answer in answers:
        if isinstance(answer, MillraceError):
            error = answer
            continue
        for result in answer.partitions:
            where = TopicPartition(result.topic, result.partition)
            if not result.error_code:
                found[where] = result
                continue
            refused = broker_error(result.error_code, result.error_message, about=str(where))
            if error is None or error.retriable:
                error = refused
    return error


async def _ask(
    cluster: Cluster, node_id: int, asked: tuple[ListOffsetsPartition, ...], deadline: float
) -> ListOffsetsResponse | MillraceError:
    left_ms = max(1, int((deadline - asyncio.get_running_loop().time()) * 1000))
    try:
        connection = await cluster.connection(node_id)
        return await connection.call(
            ListOffsetsRequest(asked), ListOffsetsResponse, timeout_ms=left_ms
        )
    except MillraceError as error:
        return error
