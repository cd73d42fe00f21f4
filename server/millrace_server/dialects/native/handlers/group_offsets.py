"""OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages import group_offsets as messages
from millrace_server.api_error import ApiError
from millrace_server.broker import Broker
from millrace_server.dialects.native.answer import Answered
from millrace_server.dialects.native.handlers.group_results import expect, outcome
from millrace_server.dialects.native.later import mapped
from millrace_server.group import requests
from millrace_server.group.effects import FetchedOffset, PartitionOutcomes, Result
from millrace_server.net.connection import Connection

NO_OFFSET = -1


def commit(
    broker: Broker, connection: Connection, request: messages.OffsetCommitRequest
) -> Answered:
    """Answers when the offsets are durable; partitions that do not exist are refused."""
    refused = {
        (p.topic, p.partition): message
        for p in request.partitions
        if (message := _unknown(broker, p.topic, p.partition)) is not None
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
            if (p.topic, p.partition) not in refused
        ),
    )

    def committed(result: Result) -> messages.OffsetCommitResponse:
        done = iter(expect(result, PartitionOutcomes).partitions)
        return messages.OffsetCommitResponse(
            tuple(
                messages.CommittedPartition(
                    p.topic, p.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message
                )
                if (message := refused.get((p.topic, p.partition))) is not None
                else messages.CommittedPartition(p.topic, p.partition, *outcome(next(done).refusal))
                for p in request.partitions
            )
        )

    answer = broker.groups.ask(
        request.group, lambda c, token, moment: c.commit(token, asked, moment)
    )
    return mapped(answer, committed)


def _unknown(broker: Broker, topic: str, partition: int) -> str | None:
    try:
        known = broker.image.topic(topic)
    except ApiError as refused:
        return refused.message
    if 0 <= partition < known.partition_count:
        return None
    return f"Topic {topic!r} has no partition {partition}; it has 0 to {known.partition_count - 1}"


def fetch(broker: Broker, connection: Connection, request: messages.OffsetFetchRequest) -> Answered:
    """Answers with what is durable."""
    wanted = request.partitions
    found = broker.groups.coordinator(request.group).fetch_offsets(
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


def delete(
    broker: Broker, connection: Connection, request: messages.OffsetDeleteRequest
) -> Answered:
    """Answers when it is durable that the offsets are forgotten."""
    wanted = [requests.TopicPartition(p.topic, p.partition) for p in request.partitions]
    answer = broker.groups.ask(
        request.group,
        lambda c, token, moment: c.delete_offsets(token, request.group, wanted, moment),
    )
    return mapped(answer, _deleted)


def _deleted(result: Result) -> messages.OffsetDeleteResponse:
    return messages.OffsetDeleteResponse(
        tuple(
            messages.CommittedPartition(topic, partition, *outcome(refusal))
            for topic, partition, refusal in expect(result, PartitionOutcomes).partitions
        )
    )
