"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments."""

from __future__ import annotations

from itertools import groupby

from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka import elections, reassignments
from millrace_server.api_error import ApiError
from millrace_server.dialects.kafka.errors import kafka_code
from millrace_server.metadata.partition_changes import Election
from millrace_server.metadata.reassignments import Reassignment
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

_ELECTIONS = {elections.PREFERRED: Election.PREFERRED, elections.UNCLEAN: Election.UNCLEAN}


async def elect(
    services: Services,
    context: RequestContext,
    request: elections.ElectLeadersRequest,
    version: int,
) -> elections.ElectLeadersResponse:
    """Elects a leader of each partition for itself."""
    election = _ELECTIONS.get(request.election_type)
    if election is None and request.topic_partitions == ():
        return elections.ElectLeadersResponse(0)
    if election is None:
        unknown = f"There is no election of type {request.election_type}; the types are 0 and 1"
        return _not_elected(request, ApiError(ErrorCode.INVALID_REQUEST, unknown))
    wanted = None
    if request.topic_partitions is not None:
        named = ((t.topic, number) for t in request.topic_partitions for number in t.partitions)
        wanted = [*dict.fromkeys(named)]
    try:
        elected = await services.run(services.administration.elect(context, wanted, election))
    except ApiError as error:
        return _not_elected(request, error)
    topics = services.cluster.visible_topics(context)
    if request.topic_partitions is not None:
        topics = [each.topic for each in request.topic_partitions]
    results: dict[str, list[elections.PartitionResult]] = {name: [] for name in topics}
    for each in elected:
        result = elections.PartitionResult(each.number, *_outcome(each.error))
        results.setdefault(each.topic, []).append(result)
    return elections.ElectLeadersResponse(
        replica_election_results=tuple(
            elections.ReplicaElectionResult(topic, tuple(of_topic))
            for topic, of_topic in results.items()
        )
    )


def _not_elected(
    request: elections.ElectLeadersRequest, error: ApiError
) -> elections.ElectLeadersResponse:
    """Also at each partition: the first version has no error of the request."""
    refused = tuple(
        elections.ReplicaElectionResult(
            topic.topic,
            tuple(elections.PartitionResult(n, *_outcome(error)) for n in topic.partitions),
        )
        for topic in request.topic_partitions or ()
    )
    return elections.ElectLeadersResponse(0, kafka_code(error.code), refused)


async def reassign(
    services: Services,
    context: RequestContext,
    request: reassignments.AlterPartitionReassignmentsRequest,
    version: int,
) -> reassignments.AlterPartitionReassignmentsResponse:
    """Begins, replaces or cancels each reassignment for itself."""
    may_change = request.allow_replication_factor_change
    response = reassignments.AlterPartitionReassignmentsResponse(0, may_change)
    wanted = [
        Reassignment(topic.name, each.partition_index, each.replicas)
        for topic in request.topics
        for each in topic.partitions
    ]
    refused = [None if may_change else _other_factor(services, context, each) for each in wanted]
    allowed = [each for each, error in zip(wanted, refused, strict=True) if error is None]
    try:
        done = iter(
            await services.run(services.administration.reassign(context, allowed, may_replace=True))
        )
    except ApiError as error:
        response.error_code, response.error_message = _outcome(error)
        return response
    results = iter([next(done) if error is None else error for error in refused])
    response.responses = tuple(
        reassignments.ReassignableTopicResponse(
            topic.name,
            tuple(
                reassignments.ReassignablePartitionResponse(
                    each.partition_index, *_outcome(next(results))
                )
                for each in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return response


def _other_factor(
    services: Services, context: RequestContext, wanted: Reassignment
) -> ApiError | None:
    """The error of a reassignment to more or fewer replicas (KIP-860)."""
    if not wanted.replicas:
        return None
    if services.cluster.unknown_partition(context, wanted.topic, wanted.partition) is not None:
        return None
    if not services.cluster.broker_ids >= {*wanted.replicas}:
        return None  # Refused for that, with another code.
    known = services.cluster.topic(context, wanted.topic).partitions[wanted.partition]
    count = len(known.replicas) - len(known.removing)
    if len(wanted.replicas) == count:
        return None
    return ApiError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"The partition has {count} replica(s) and is to have {len(wanted.replicas)}, which the "
        "request does not allow",
    )


async def list_reassignments(
    services: Services,
    context: RequestContext,
    request: reassignments.ListPartitionReassignmentsRequest,
    version: int,
) -> reassignments.ListPartitionReassignmentsResponse:
    """The reassignments in progress."""
    numbers = None
    if request.topics is not None:
        numbers = {each.name: {*each.partition_indexes} for each in request.topics}
    topics = None if numbers is None else [*numbers]
    try:
        ongoing = await services.run(services.administration.reassignments(context, topics))
    except ApiError as error:
        return reassignments.ListPartitionReassignmentsResponse(0, *_outcome(error))
    found = (o for o in ongoing if numbers is None or o.number in numbers[o.topic])
    return reassignments.ListPartitionReassignmentsResponse(
        topics=tuple(
            reassignments.OngoingTopicReassignment(
                topic,
                tuple(
                    reassignments.OngoingPartitionReassignment(
                        each.number, each.replicas, each.adding, each.removing
                    )
                    for each in of_topic
                ),
            )
            for topic, of_topic in groupby(found, key=lambda each: each.topic)
        )
    )


def _outcome(error: ApiError | None) -> tuple[int, str | None]:
    return (ErrorCode.NONE, None) if error is None else (kafka_code(error.code), error.message)
