"""OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from millrace_protocol.messages import group_offsets as messages
from millrace_server.dialects.native.handlers.group_results import expect, outcome
from millrace_server.dialects.native.response_body import Handled
from millrace_server.group import requests
from millrace_server.group.effects import FetchedOffset, PartitionOutcomes, Result
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

NO_OFFSET = -1


async def commit(
    services: Services, context: RequestContext, request: messages.OffsetCommitRequest
) -> messages.OffsetCommitResponse:
    """Answers when the offsets are durable; partitions that do not exist are refused."""
    unknown = {
        (p.topic, p.partition): error
        for p in request.partitions
        if (error := services.cluster.unknown_partition(p.topic, p.partition)) is not None
    }
    asked = requests.Commit(
        group_id=request.group,
        member_id=request.member_id,
        generation=request.generation,
        instance_id=request.instance_id,
        offsets=tuple(
            requests.OffsetToCommit(
                p.topic, p.partition, p.offset, p.leader_epoch, p.metadata or ""
            )
            for p in request.partitions
            if (p.topic, p.partition) not in unknown
        ),
    )

    result = await services.groups.ask(
        request.group, lambda c, token, moment: c.commit(token, asked, moment)
    )
    done = iter(expect(result, PartitionOutcomes).partitions)
    return messages.OffsetCommitResponse(
        tuple(
            messages.CommittedPartition(p.topic, p.partition, error.code, error.message)
            if (error := unknown.get((p.topic, p.partition))) is not None
            else messages.CommittedPartition(p.topic, p.partition, *outcome(next(done).refusal))
            for p in request.partitions
        )
    )


def fetch(
    services: Services, context: RequestContext, request: messages.OffsetFetchRequest
) -> Handled:
    """Answers with what is durable."""
    wanted = request.partitions
    found = services.groups.coordinator(request.group).fetch_offsets(
        request.group,
        None if wanted is None else [requests.TopicPartition(p.topic, p.partition) for p in wanted],
    )
    return messages.OffsetFetchResponse(tuple(map(_fetched, found)))


def _fetched(found: FetchedOffset) -> messages.CommittedOffset:
    code, message = outcome(found.refusal)
    committed = found.committed
    if committed is None:
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
    """Answers when it is durable that the offsets are deleted."""
    wanted = [requests.TopicPartition(p.topic, p.partition) for p in request.partitions]
    return _deleted(
        await services.groups.ask(
            request.group,
            lambda c, token, moment: c.delete_offsets(token, request.group, wanted, moment),
        )
    )


def _deleted(result: Result) -> messages.OffsetDeleteResponse:
    return messages.OffsetDeleteResponse(
        tuple(
            messages.CommittedPartition(topic, partition, *outcome(refusal))
            for topic, partition, refusal in expect(result, PartitionOutcomes).partitions
        )
    )
