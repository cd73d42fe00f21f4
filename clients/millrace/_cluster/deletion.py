"""Asks the leaders of partitions to delete their oldest records."""

from __future__ import annotations

from collections.abc import Mapping

from millrace._cluster.cluster import Cluster
from millrace._cluster.connection import Connection
from millrace._cluster.leaders import ask_leaders
from millrace.records import TopicPartition
from millrace_protocol.messages.delete_records import (
    DeletedRecords,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
)


async def delete_records(
    cluster: Cluster, offsets: Mapping[TopicPartition, int], *, timeout_ms: int
) -> dict[TopicPartition, DeletedRecords]:
    """Deletes what lies before each offset; -1 is the high watermark.

    Follows leaders and tries again until `timeout_ms` is over: a repeated deletion changes nothing.
    Raises the error of a partition, or the last one that stood in the way.
    """
    asked = {where: DeleteRecordsPartition(*where, offset) for where, offset in offsets.items()}
    return await ask_leaders(cluster, asked, _ask, timeout_ms=timeout_ms)


async def _ask(
    connection: Connection, asked: tuple[DeleteRecordsPartition, ...], timeout_ms: int
) -> tuple[DeletedRecords, ...]:
    request = DeleteRecordsRequest(asked)
    return (await connection.call(request, DeleteRecordsResponse, timeout_ms=timeout_ms)).partitions
