"""Fetch: slices of the log into a response whose payload never enters this process's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from millrace_protocol.codec import Encoder, encode_parts
from millrace_protocol.kafka.fetch import (
    NO_SESSION,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from millrace_protocol.schema import Message
from millrace_server.dialects.kafka.context import KafkaContext
from millrace_server.dialects.kafka.errors import KafkaError, kafka_code
from millrace_server.dialects.kafka.fetch_sessions import SessionPartition, SessionRefused
from millrace_server.dialects.kafka.handlers.new_leaders import endpoints, new_leader
from millrace_server.dialects.kafka.handlers.topic_names import name_of
from millrace_server.dialects.response_body import BodyParts
from millrace_server.environment.seams import ResponsePart
from millrace_server.services.fetch import CHUNK_ENTRIES, Fetched, FetchFrom, release
from millrace_server.services.services import Services

IDS_SINCE = 13
READ_COMMITTED = 1
CHUNK_PARTITIONS = 100
"""Made into messages in one chunk, some 200 us."""


async def handle(
    services: Services, context: KafkaContext, request: FetchRequest, version: int
) -> FetchResponse | BodyParts:
    """Reads at once, or waits for more as the request says."""
    is_by_id = version >= IDS_SINCE
    try:
        session, partitions = context.fetch_sessions.begin(
            request, is_by_id=is_by_id, now_ms=services.env.clock.monotonic_ms()
        )
    except SessionRefused as refused:
        return FetchResponse(error_code=refused.error)
    wanted = await _wanted(services, context, partitions, is_by_id=is_by_id)
    known = [each for each in wanted if each is not None]
    fetched = await services.fetch.fetch(
        context,
        known,
        # A topic that is not there is told of at once, and so is a request for nothing.
        max_wait_ms=request.max_wait_ms if known and len(known) == len(wanted) else 0,
        min_bytes=request.min_bytes,
        # The first batch is returned whole, whatever its size.
        max_bytes=max(request.max_bytes, 1),
        rack=request.rack_id or None,
        is_bounded=True,
    )
    try:
        results = iter(fetched)
        is_committed = request.isolation_level == READ_COMMITTED
        found: list[tuple[SessionPartition, PartitionData]] = []
        for number, (partition, want) in enumerate(zip(partitions, wanted, strict=True), 1):
            of_log = None if want is None else next(results)
            data = _data(services, partition, of_log, is_committed=is_committed)
            if session is None or session.note(partition, data):
                found.append((partition, data))
            if not number % CHUNK_PARTITIONS:
                await services.scheduler.yield_()
        response = FetchResponse(
            services.throttle.throttle_time_ms(context),
            session_id=NO_SESSION if session is None else session.session_id,
            responses=_by_topic(found),
        )
        errors = [each.code for each in fetched if each.code]
        if errors:
            told = (data.current_leader for _, data in found)
            response.node_endpoints = endpoints(services, context, told)
        parts: Sequence[ResponsePart]
        if len(found) <= CHUNK_ENTRIES:
            parts = encode_parts(response, version)
        else:
            parts = await _encoded_in_chunks(services, response, version)
    except BaseException:
        release(fetched)
        raise
    return BodyParts([*parts], sum(map(len, parts)), errors)


async def _wanted(
    services: Services,
    context: KafkaContext,
    partitions: Sequence[SessionPartition],
    *,
    is_by_id: bool,
) -> list[FetchFrom | None]:
    """Where to read each partition from; None where no topic has the id."""
    found: list[FetchFrom | None] = []
    for number, partition in enumerate(partitions, 1):
        if not number % CHUNK_PARTITIONS:
            await services.scheduler.yield_()
        name: str | None = partition.topic
        if is_by_id:
            name = name_of(services, context, "", partition.topic_id, is_by_id=True)
        wanted = partition.wanted
        epoch = wanted.current_leader_epoch
        found.append(
            None
            if name is None
            else FetchFrom(
                name,
                wanted.partition,
                wanted.fetch_offset,
                wanted.partition_max_bytes,
                # Every negative epoch says that the client knows none.
                epoch if epoch >= 0 else -1,
            )
        )
    return found


def _data(
    services: Services,
    partition: SessionPartition,
    fetched: Fetched | None,
    *,
    is_committed: bool,
) -> PartitionData:
    """The records of a partition; `fetched` is None where no topic has the id."""
    number = partition.wanted.partition
    if fetched is None:
        return PartitionData(number, KafkaError.UNKNOWN_TOPIC_ID, -1, records=b"")
    if fetched.code:
        code = kafka_code(fetched.code)
        return PartitionData(
            number,
            code,
            -1,
            aborted_transactions=() if is_committed else None,
            preferred_read_replica=fetched.preferred_replica,
            records=b"",
            current_leader=new_leader(services, fetched.topic, number, code),
        )
    high_watermark = fetched.high_watermark
    return PartitionData(
        number,
        error_code=0,
        high_watermark=high_watermark,
        # Every record is of no transaction, and so all that are replicated are stable.
        last_stable_offset=high_watermark,
        log_start_offset=fetched.log_start_offset,
        aborted_transactions=() if is_committed else None,
        preferred_read_replica=fetched.preferred_replica,
        # A slice of a file stands for its bytes, and is a part of the body as it is.
        records=b"" if fetched.records is None else cast(memoryview, fetched.records),
    )


def _by_topic(
    found: Sequence[tuple[SessionPartition, PartitionData]],
) -> tuple[FetchableTopicResponse, ...]:
    topics: list[tuple[SessionPartition, list[PartitionData]]] = []
    for partition, data in found:
        if topics and topics[-1][0].is_of_topic(partition):
            topics[-1][1].append(data)
        else:
            topics.append((partition, [data]))
    return tuple(
        [
            FetchableTopicResponse(first.topic, first.topic_id, tuple(partitions))
            for first, partitions in topics
        ]
    )


async def _encoded_in_chunks(
    services: Services, response: Message, version: int
) -> Sequence[ResponsePart]:
    encoder = Encoder(response, version)
    while not encoder.step(CHUNK_ENTRIES):
        await services.scheduler.yield_()
    return encoder.parts
