"""Fetch: slices of the log into a response whose payload never enters this process's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from millrace_protocol.codec import Encoder, encode_parts
from millrace_protocol.errors import ErrorCode
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
    names: list[str | None] = [
        name_of(services, context, each.topic, each.topic_id, is_by_id=True)
        if is_by_id
        else each.topic
        for each in partitions
    ]
    wanted = [_from(name, p) for name, p in zip(names, partitions, strict=True) if name is not None]
    fetched = await services.fetch.fetch(
        context,
        wanted,
        # A topic that is not there is told of at once, and so is a request for nothing.
        max_wait_ms=0 if None in names or not wanted else request.max_wait_ms,
        min_bytes=request.min_bytes,
        # The first batch is returned whole, whatever its size.
        max_bytes=max(request.max_bytes, 1),
        rack=request.rack_id or None,
    )
    try:
        results = iter(fetched)
        is_committed = request.isolation_level == READ_COMMITTED
        found: list[tuple[SessionPartition, PartitionData]] = []
        for number, (name, partition) in enumerate(zip(names, partitions, strict=True), 1):
            data = _data(
                partition, None if name is None else next(results), is_committed=is_committed
            )
            if session is None or session.note(partition, data):
                found.append((partition, data))
            if not number % CHUNK_PARTITIONS:
                await services.scheduler.yield_()
        response = FetchResponse(
            throttle_time_ms=services.throttle.throttle_time_ms(context),
            session_id=NO_SESSION if session is None else session.session_id,
            responses=_by_topic(found),
        )
        parts = await _encoded(services, response, version, is_long=len(found) > CHUNK_ENTRIES)
    except BaseException:
        release(fetched)
        raise
    errors = [each.code for each in fetched if each.code]
    return BodyParts([*parts], sum(map(len, parts)), errors)


def _from(name: str, partition: SessionPartition) -> FetchFrom:
    wanted = partition.wanted
    return FetchFrom(
        name,
        wanted.partition,
        wanted.fetch_offset,
        wanted.partition_max_bytes,
        # Every negative epoch says that the client knows none.
        max(wanted.current_leader_epoch, -1),
    )


def _data(
    partition: SessionPartition, fetched: Fetched | None, *, is_committed: bool
) -> PartitionData:
    """The records of a partition; `fetched` is None where no topic has the id."""
    number = partition.wanted.partition
    if fetched is None:
        return PartitionData(number, KafkaError.UNKNOWN_TOPIC_ID, -1, records=b"")
    records = b"" if fetched.records is None else fetched.records
    has_failed = fetched.code is not ErrorCode.NONE
    return PartitionData(
        partition_index=number,
        error_code=kafka_code(fetched.code),
        high_watermark=-1 if has_failed else fetched.high_watermark,
        # Every record is of no transaction, and so all that are replicated are stable.
        last_stable_offset=-1 if has_failed else fetched.high_watermark,
        log_start_offset=-1 if has_failed else fetched.log_start_offset,
        aborted_transactions=() if is_committed else None,
        preferred_read_replica=fetched.preferred_replica,
        # A slice of a file stands for its bytes, and is a part of the body as it is.
        records=cast(memoryview, records),
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


async def _encoded(
    services: Services, response: Message, version: int, *, is_long: bool
) -> Sequence[ResponsePart]:
    if not is_long:
        return encode_parts(response, version)
    encoder = Encoder(response, version)
    while not encoder.step(CHUNK_ENTRIES):
        await services.scheduler.yield_()
    return encoder.parts
