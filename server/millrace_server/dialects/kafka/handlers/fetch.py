"""Fetch: slices of the log into a response whose payload never enters this process's memory.

There are no sessions (KIP-227): the response to a client that wants one has session id 0, and the
client goes on with whole requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from millrace_protocol.codec import Encoder, encode_parts
from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka.fetch import (
    NO_SESSION,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from millrace_server.dialects.kafka.errors import KafkaError, kafka_code
from millrace_server.dialects.kafka.handlers.topic_names import name_of
from millrace_server.dialects.response_body import BodyParts
from millrace_server.services.fetch import CHUNK_ENTRIES, Fetched, FetchFrom, release
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

IDS_SINCE = 13
READ_COMMITTED = 1


async def handle(
    services: Services, context: RequestContext, request: FetchRequest, version: int
) -> FetchResponse | BodyParts:
    """Reads at once, or waits for more as the request says."""
    if request.session_id != NO_SESSION:
        return FetchResponse(error_code=KafkaError.FETCH_SESSION_ID_NOT_FOUND)
    is_by_id = version >= IDS_SINCE
    names = [name_of(services, t.topic, t.topic_id, is_by_id=is_by_id) for t in request.topics]
    wanted = [
        FetchFrom(name, p.partition, p.fetch_offset, p.partition_max_bytes, p.current_leader_epoch)
        for name, topic in zip(names, request.topics, strict=True)
        if name is not None
        for p in topic.partitions
    ]
    fetched = await services.fetch.fetch(
        context,
        wanted,
        # A topic that is not there is told of at once.
        max_wait_ms=0 if None in names else request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        rack=request.rack_id or None,
    )
    try:
        results = iter(fetched)
        is_committed = request.isolation_level == READ_COMMITTED
        topics: list[FetchableTopicResponse] = []
        for name, topic in zip(names, request.topics, strict=True):
            if len(fetched) > CHUNK_ENTRIES and topics:
                await services.scheduler.yield_()
            found = None if name is None else results
            topics.append(_topic(topic, found, is_committed=is_committed))
        response = FetchResponse(responses=tuple(topics))
        if len(fetched) <= CHUNK_ENTRIES:
            parts = encode_parts(response, version)
        else:
            encoder = Encoder(response, version)
            while not encoder.step(CHUNK_ENTRIES):
                await services.scheduler.yield_()
            parts = encoder.parts
    except BaseException:
        release(fetched)
        raise
    errors = [each.code for each in fetched if each.code]
    return BodyParts([*parts], sum(map(len, parts)), errors)


def _topic(
    topic: FetchTopic, results: Iterator[Fetched] | None, *, is_committed: bool
) -> FetchableTopicResponse:
    """The records of a topic; `results` is None where no topic has the id."""
    if results is None:
        code = int(KafkaError.UNKNOWN_TOPIC_ID)
        found = [PartitionData(each.partition, code, -1, records=b"") for each in topic.partitions]
    else:
        found = [_partition(next(results), is_committed=is_committed) for _ in topic.partitions]
    return FetchableTopicResponse(topic.topic, topic.topic_id, tuple(found))


def _partition(fetched: Fetched, *, is_committed: bool) -> PartitionData:
    records = b"" if fetched.records is None else fetched.records
    has_failed = fetched.code is not ErrorCode.NONE
    return PartitionData(
        partition_index=fetched.partition,
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
