"""OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from millrace_protocol.messages import group_offsets as messages
from millrace_server.dialects.native.handlers.outcome import outcome
from millrace_server.dialects.response_body import Handled
from millrace_server.group import requests
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

NO_OFFSET = -1


async def commit(
    services: Services, context: RequestContext, request: messages.OffsetCommitRequest
) -> messages.OffsetCommitResponse:
    """Answers when the offsets are durable."""
    asked = requests.OffsetCommit(
        group_id=request.group,
        member_id=request.member_id,
        generation=request.generation,
        instance_id=request.instance_id,
        offsets=tuple(
            requests.OffsetToCommit(
                p.topic, p.partition, p.offset, p.leader_epoch, p.metadata or ""
            )
            for p in request.partitions
        ),
    )
    committed = await services.groups.commit(context, asked)
    return messages.OffsetCommitResponse(tuple(map(_committed, committed)))


def fetch(
    services: Services, context: RequestContext, request: messages.OffsetFetchRequest
) -> Handled:
    """Answers with the durable offsets."""
    wanted = request.partitions
    found = services.groups.fetch_offsets(
        context,
        request.group,
        None if wanted is None else [requests.TopicPartition(p.topic, p.partition) for p in wanted],
    )
    return messages.OffsetFetchResponse(tuple(map(_fetched, found)))


def _fetched(found: requests.FetchedOffset) -> messages.CommittedOffset:
    code, message = outcome(found.error)
    committed = found.committed
    if committed is None or committed.offset < 0:
        return messages.CommittedOffset(
            found.topic, found.partition, code, message, NO_OFFSET, -1, None, -1
        )
    return messages.CommittedOffset(
        found.topic,
        found.partition,
        code,
        message,
        committed.offset,
        committed.leader_epoch,
        committed.metadata,
        committed.commit_wall_ms,
    )


async def delete(
    services: Services, context: RequestContext, request: messages.OffsetDeleteRequest
) -> messages.OffsetDeleteResponse:
    """Answers when the deletion is durable."""
    wanted = [requests.TopicPartition(p.topic, p.partition) for p in request.partitions]
    deleted = await services.groups.delete_offsets(context, request.group, wanted)
    return messages.OffsetDeleteResponse(tuple(map(_committed, deleted)))


def _committed(result: requests.PartitionResult) -> messages.CommittedPartition:
    return messages.CommittedPartition(result.topic, result.partition, *outcome(result.error))
