"""Asks the leaders of partitions for offsets: the ends of a log, and points in time."""

from __future__ import annotations

from collections.abc import Mapping

from millrace._cluster.cluster import Cluster
from millrace._cluster.connection import Connection
from millrace._cluster.leaders import ask_leaders
from millrace.records import TopicPartition
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
    asked = {where: ListOffsetsPartition(*where, time) for where, time in questions.items()}
    return await ask_leaders(cluster, asked, _ask, timeout_ms=timeout_ms)


async def _ask(
    connection: Connection, asked: tuple[ListOffsetsPartition, ...], timeout_ms: int
) -> tuple[ListOffsetsResult, ...]:
    request = ListOffsetsRequest(asked)
    return (await connection.call(request, ListOffsetsResponse, timeout_ms=timeout_ms)).partitions
