"""DescribeQuorum: the replicas of the metadata log, as the active controller sees them."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka import describe_quorum as messages
from millrace_server.api_error import ApiError
from millrace_server.dialects.kafka.errors import kafka_code
from millrace_server.services.quorum import QuorumState, ReplicaState
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

METADATA_TOPIC = "__cluster_metadata"


async def describe(
    services: Services,
    context: RequestContext,
    request: messages.DescribeQuorumRequest,
    version: int,
) -> messages.DescribeQuorumResponse:
    """Describes the only quorum there is; another partition is unknown."""
    try:
        state = await services.run(services.administration.quorum(context))
    except ApiError as error:
        return messages.DescribeQuorumResponse(kafka_code(error.code), error.message)
    now_ms = services.env.clock.wall_ms()
    topics = tuple(
        messages.TopicData(
            topic.topic_name,
            tuple(
                _described(state, now_ms)
                if (topic.topic_name, each.partition_index) == (METADATA_TOPIC, 0)
                else messages.PartitionData(
                    each.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                for each in topic.partitions
            ),
        )
        for topic in request.topics
    )
    voters = {each.broker_id for each in state.replicas if each.is_voter}
    # The Java client takes only names in capitals.
    name = context.listener.upper()
    nodes = tuple(
        messages.Node(b.node_id, (messages.Listener(name, b.host, b.port),))
        for b in services.cluster.brokers(context.listener)
        if b.node_id in voters
    )
    return messages.DescribeQuorumResponse(ErrorCode.NONE, None, topics, nodes)


def _described(state: QuorumState, now_ms: int) -> messages.PartitionData:
    voters = [_replica(each, now_ms) for each in state.replicas if each.is_voter]
    others = [_replica(each, now_ms) for each in state.replicas if not each.is_voter]
    return messages.PartitionData(
        0,
        ErrorCode.NONE,
        None,
        state.leader_id,
        state.leader_epoch,
        state.high_watermark,
        tuple(voters),
        tuple(others),
    )


def _replica(replica: ReplicaState, now_ms: int) -> messages.ReplicaState:
    fetched_ms, caught_up_ms = replica.fetched_ms, replica.caught_up_ms
    return messages.ReplicaState(
        replica.broker_id,
        replica.directory_id,
        replica.end_offset,
        -1 if fetched_ms < 0 else now_ms - fetched_ms,
        -1 if caught_up_ms < 0 else now_ms - caught_up_ms,
    )
