"""`struct` codecs of the hot messages: Produce and Fetch, requests and answers.

Owns speed and nothing else. The layouts are declared in `messages/`; what is written here gives
and takes the same dataclasses and the same bytes, which property tests pin. Two differences are
meant: `records` is a slice of the body and not a copy of it, and bytes or values that are wrong
go to the codec of all messages (`compiled`), which says what is wrong and where. Version 0 of each
message; `millrace_protocol.codec` chooses.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from millrace_protocol.compiled import decode_body, encode_body
from millrace_protocol.messages.fetch import (
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
)
from millrace_protocol.messages.produce import (
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
)
from millrace_protocol.primitives import ARRAY_COUNT_MAX, STRING_BYTES_MAX
from millrace_protocol.schema import Message

Buffer = bytes | bytearray | memoryview

_SIZE = struct.Struct(">h")
_COUNT = struct.Struct(">i")
_PRODUCE_HEAD = struct.Struct(">hii")
PRODUCE_COUNT_END = _PRODUCE_HEAD.size
_PRODUCE_PARTITION = struct.Struct(">ii")
_FETCH_HEAD = struct.Struct(">iiii")
_FETCH_PARTITION = struct.Struct(">iiqi")
_RESULT_START = struct.Struct(">ih")
_RESULT_HEAD = struct.Struct(">ihh")
_PRODUCE_RESULT_TAIL = struct.Struct(">qqq")
_FETCH_RESULT_TAIL = struct.Struct(">qqi")

_CACHED_NAME_SIZE_MAX = 249
"""Longest name worth remembering: a topic's (W-6.5). It also bounds the cache to 1 MiB."""


class _Broken(Exception):
    """The body is not what it should be: `compiled` shall say why."""


def array_count(count: int) -> bytes:
    """The four bytes in front of an array of `count` elements."""
    return _COUNT.pack(count)


def produce_request_parts(request: ProduceRequest) -> list[Buffer]:
    """The body of a Produce request in pieces, so that the batches need not be copied.

    The pieces are views of the very `records` given; send them with `writelines` or `sendmsg`
    before those change. Raises `ValueError` for a value its type cannot carry.
    """
    try:
        head = _PRODUCE_HEAD.pack(request.acks, request.timeout_ms, _count(request.partitions))
        parts: list[Buffer] = []
        for partition in request.partitions:
            records = partition.records
            parts += (
                head
                + _name(partition.topic)
                + _PRODUCE_PARTITION.pack(partition.partition, len(records)),
                records,
            )
            head = b""
    except struct.error:
        return [encode_body(request, 0)]
    return parts or [head]


def encode_produce_request(request: ProduceRequest) -> bytes:
    """The body in one piece; `produce_request_parts` spares the copy."""
    return b"".join(produce_request_parts(request))


def produce_count(body: Buffer) -> int:
    """How many partitions a Produce request says that it names, before it is decoded.

    The body has at least the ten bytes up to the end of the count.
    """
    count: int = _PRODUCE_HEAD.unpack_from(body)[2]
    return count


def decode_produce_request(body: Buffer) -> ProduceRequest:
    """The request; its `records` are views of `body`. Raises `WireError`."""
    view = memoryview(body)
    size = len(view)
    try:
        acks, timeout_ms, count = _PRODUCE_HEAD.unpack_from(view)
        position = _PRODUCE_HEAD.size
        _check_count(count, size - position, ProduceRequest)
        partitions = []
        for _ in range(count):
            topic, position = _string_at(view, position)
            partition, records_size = _PRODUCE_PARTITION.unpack_from(view, position)
            start = position + _PRODUCE_PARTITION.size
            position = start + records_size
            if records_size < 0 or position > size:
                raise _Broken
            partitions.append(ProducePartition(topic, partition, view[start:position]))
        if position != size:
            raise _Broken
    except (struct.error, UnicodeDecodeError, _Broken):
        return decode_body(ProduceRequest, body, 0)
    return ProduceRequest(acks, timeout_ms, tuple(partitions))


def encode_produce_response(response: ProduceResponse) -> bytes:
    """The body. Raises `ValueError` for a value its type cannot carry."""
    try:
        parts = [array_count(_count(response.partitions))]
        parts += [
            _result_head(result.topic, result.partition, result.error_code, result.error_message)
            + _PRODUCE_RESULT_TAIL.pack(
                result.base_offset, result.log_append_time_ms, result.log_start_offset
            )
            for result in response.partitions
        ]
    except struct.error:
        return encode_body(response, 0)
    return b"".join(parts)


def decode_produce_response(body: Buffer) -> ProduceResponse:
    """The response. Raises `WireError`."""
    view = memoryview(body)
    size = len(view)
    try:
        (count,) = _COUNT.unpack_from(view)
        position = _COUNT.size
        _check_count(count, size - position, ProduceResponse)
        partitions = []
        for _ in range(count):
            topic, partition, error_code, error_message, position = _result_head_at(view, position)
            tail = _PRODUCE_RESULT_TAIL.unpack_from(view, position)
            position += _PRODUCE_RESULT_TAIL.size
            partitions.append(
                ProducePartitionResult(topic, partition, error_code, error_message, *tail)
            )
        if position != size:
            raise _Broken
    except (struct.error, UnicodeDecodeError, _Broken):
        return decode_body(ProduceResponse, body, 0)
    return ProduceResponse(tuple(partitions))


def encode_fetch_request(request: FetchRequest) -> bytes:
    """The body. Raises `ValueError` for a value its type cannot carry."""
    try:
        parts = [
            _FETCH_HEAD.pack(
                request.max_wait_ms,
                request.min_bytes,
                request.max_bytes,
                _count(request.partitions),
            )
        ]
        parts += [
            _name(wanted.topic)
            + _FETCH_PARTITION.pack(
                wanted.partition, wanted.leader_epoch, wanted.fetch_offset, wanted.max_bytes
            )
            for wanted in request.partitions
        ]
    except struct.error:
        return encode_body(request, 0)
    return b"".join(parts)


def decode_fetch_request(body: Buffer) -> FetchRequest:
    """The request. Raises `WireError`."""
    view = memoryview(body)
    size = len(view)
    try:
        max_wait_ms, min_bytes, max_bytes, count = _FETCH_HEAD.unpack_from(view)
        position = _FETCH_HEAD.size
        _check_count(count, size - position, FetchRequest)
        partitions = []
        for _ in range(count):
            topic, position = _string_at(view, position)
            fields = _FETCH_PARTITION.unpack_from(view, position)
            position += _FETCH_PARTITION.size
            partitions.append(FetchPartition(topic, *fields))
        if position != size:
            raise _Broken
    except (struct.error, UnicodeDecodeError, _Broken):
        return decode_body(FetchRequest, body, 0)
    return FetchRequest(max_wait_ms, min_bytes, max_bytes, tuple(partitions))


def fetch_response_prefix(
    *,
    topic: str,
    partition: int,
    error_code: int,
    error_message: str | None,
    high_watermark: int,
    log_start_offset: int,
    records_size: int,
) -> bytes:
    """One partition's entry in a Fetch response, up to and including the length of `records`.

    The `records_size` bytes themselves follow from wherever they are: a file, by `sendfile`. A
    whole body is `array_count(n)` and then, n times, a prefix and its records. Raises
    `ValueError` or `struct.error` for a value its type cannot carry.
    """
    return _result_head(topic, partition, error_code, error_message) + _FETCH_RESULT_TAIL.pack(
        high_watermark, log_start_offset, records_size
    )


def encode_fetch_response(response: FetchResponse) -> bytes:
    """The body with copies of the records. Raises `ValueError` for what a type cannot carry."""
    return b"".join(fetch_response_parts(response))


def fetch_response_parts(response: FetchResponse) -> list[Buffer]:
    """The body in parts, `records` among them as they are. Raises `ValueError`."""
    try:
        parts: list[Buffer] = [array_count(_count(response.partitions))]
        for result in response.partitions:
            prefix = fetch_response_prefix(
                topic=result.topic,
                partition=result.partition,
                error_code=result.error_code,
                error_message=result.error_message,
                high_watermark=result.high_watermark,
                log_start_offset=result.log_start_offset,
                records_size=len(result.records),
            )
            parts += (prefix, result.records)
    except struct.error:
        return [encode_body(response, 0)]
    return parts


def decode_fetch_response(body: Buffer) -> FetchResponse:
    """The response; its `records` are views of `body`. Raises `WireError`."""
    view = memoryview(body)
    size = len(view)
    try:
        (count,) = _COUNT.unpack_from(view)
        position = _COUNT.size
        _check_count(count, size - position, FetchResponse)
        partitions = []
        for _ in range(count):
            topic, partition, error_code, error_message, position = _result_head_at(view, position)
            high_watermark, log_start_offset, records_size = _FETCH_RESULT_TAIL.unpack_from(
                view, position
            )
            start = position + _FETCH_RESULT_TAIL.size
            position = start + records_size
            if records_size < 0 or position > size:
                raise _Broken
            partitions.append(
                FetchPartitionResult(
                    topic,
                    partition,
                    error_code,
                    error_message,
                    high_watermark,
                    log_start_offset,
                    view[start:position],
                )
            )
        if position != size:
            raise _Broken
    except (struct.error, UnicodeDecodeError, _Broken):
        return decode_body(FetchResponse, body, 0)
    return FetchResponse(tuple(partitions))


def _count(elements: tuple[object, ...]) -> int:
    if len(elements) > ARRAY_COUNT_MAX:
        raise ValueError(f"an array of {len(elements)} elements; the limit is {ARRAY_COUNT_MAX}")
    return len(elements)


def _check_count(count: int, bytes_left: int, cls: type[Message]) -> None:
    if not 0 <= count <= bytes_left or count > cls.array_max:
        raise _Broken


def _string(text: str) -> bytes:
    data = text.encode()
    if len(data) > STRING_BYTES_MAX:
        raise ValueError(f"a string of {len(data)} bytes; the limit is {STRING_BYTES_MAX}")
    return _SIZE.pack(len(data)) + data


_cached_string = lru_cache(maxsize=1024)(_string)


def _name(name: str) -> bytes:
    return _cached_string(name) if len(name) <= _CACHED_NAME_SIZE_MAX else _string(name)


def _string_at(view: memoryview, position: int) -> tuple[str, int]:
    """The string at `position` and where it ends.

    A string cut short by the end of the body is noticed by the read of what follows it: no hot
    message ends in a string.
    """
    (size,) = _SIZE.unpack_from(view, position)
    if size < 0:
        raise _Broken
    start = position + 2
    end = start + size
    return str(view[start:end], "utf-8"), end


def _result_head(topic: str, partition: int, error_code: int, error_message: str | None) -> bytes:
    """How every answer about a partition begins."""
    if error_message is None:
        return _name(topic) + _RESULT_HEAD.pack(partition, error_code, -1)
    return _name(topic) + _RESULT_START.pack(partition, error_code) + _string(error_message)


def _result_head_at(view: memoryview, position: int) -> tuple[str, int, int, str | None, int]:
    topic, position = _string_at(view, position)
    partition, error_code, message_size = _RESULT_HEAD.unpack_from(view, position)
    position += _RESULT_HEAD.size
    if message_size == -1:
        return topic, partition, error_code, None, position
    if message_size < 0:
        raise _Broken
    end = position + message_size
    return topic, partition, error_code, str(view[position:end], "utf-8"), end
