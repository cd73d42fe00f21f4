"""Record batches in a buffer: the header field by field, then each record.

Owns what a reader wants to know of a batch beyond its numbers: codec, whether the CRC is right,
times as dates. Compressed records are decompressed within a bound and shown with positions in
the decompressed bytes. Source: wire_spec.md W-5.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from millrace_protocol.dissect.records import dissect_records
from millrace_protocol.dissect.span import (
    DEFAULT_LIMITS,
    Buffer,
    Limits,
    Span,
    ValueDissector,
)
from millrace_protocol.records import (
    BATCH_HEADER,
    BATCH_LENGTH_MIN,
    HEADER_SIZE,
    BatchHeader,
    Codec,
    CompressionError,
    CorruptBatch,
    batch_crc,
    batch_extent,
    check_batch,
    decompress,
    read_header,
)

_LENGTH_END = 12
_TYPES = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def dissect_batches(
    data: Buffer,
    start: int,
    end: int,
    *,
    prefix: str = "",
    limits: Limits = DEFAULT_LIMITS,
) -> Iterator[Span]:
    """One span per batch in `data[start:end]`; the last one carries the fault if there is one.

    Follows the batch lengths only: a wrong CRC is reported and the next batch is shown.
    """
    position = start
    index = 0
    while position < end:
        name = f"{prefix}[{index}]"
        if index == limits.batches_max:
            yield Span(position, end, f"{prefix}[{index}...]", "batches", note="not shown")
            return
        span = dissect_batch(data, position, end, name=name, limits=limits)
        yield span
        if span.fault:
            return
        position = span.end
        index += 1


def dissect_batch(
    data: Buffer,
    start: int,
    end: int,
    *,
    name: str,
    limits: Limits = DEFAULT_LIMITS,
    values: ValueDissector | None = None,
) -> Span:
    """The batch at `start`. Its `fault` is set if the end of the batch cannot be known."""
    if end - start < HEADER_SIZE:
        fault = f"a batch header takes {HEADER_SIZE} bytes and {end - start} are left"
        return Span(start, end, name, "batch", fault=fault)
    size_bytes = batch_extent(data, start)[1]
    header = read_header(data, start)
    children = tuple(_header(header, data, start, end, prefix=name))
    if size_bytes < _LENGTH_END + BATCH_LENGTH_MIN:
        fault = f"batch length {header.batch_length} is less than {BATCH_LENGTH_MIN}"
        return Span(start, start + HEADER_SIZE, name, "batch", children=children, fault=fault)
    if size_bytes > end - start:
        fault = f"the batch claims {size_bytes} bytes and {end - start} are left"
        return Span(start, end, name, "batch", children=children, fault=fault)
    batch_end = start + size_bytes
    payload_start = start + HEADER_SIZE
    records = _records(
        header, data, payload_start, batch_end, prefix=name, limits=limits, values=values
    )
    return Span(start, batch_end, name, "batch", note=_summary(header), children=children + records)


def _summary(header: BatchHeader) -> str:
    return (
        f"offsets {header.base_offset} to {header.last_offset}, "
        f"{header.record_count} records, {header.size_bytes} bytes"
    )


def _header(
    header: BatchHeader, data: Buffer, start: int, end: int, *, prefix: str
) -> Iterator[Span]:
    notes = {
        "attributes": _attributes(header.attributes),
        "base_timestamp": show_time(header.base_timestamp),
        "max_timestamp": show_time(header.max_timestamp),
        "producer_id": "none" if header.producer_id == -1 else "",
    }
    faults = _header_faults(header, data, start, end)
    position = start
    for declared in BATCH_HEADER.subcons:
        name = str(declared.name)
        size = declared.sizeof()
        yield Span(
            position,
            position + size,
            f"{prefix}.{name}",
            "uint32" if name == "crc" else _TYPES[size],
            getattr(header, name),
            note=notes.get(name, ""),
            fault=faults.get(name, ""),
        )
        position += size


def _header_faults(header: BatchHeader, data: Buffer, start: int, end: int) -> dict[str, str]:
    """The fault that `check_batch` finds, by the field that has it."""
    try:
        check_batch(data, start, end)
    except CorruptBatch as error:
        if not BATCH_LENGTH_MIN <= header.batch_length <= end - start - _LENGTH_END:
            return {"batch_length": error.message}
        field = {"magic": "magic", "crc": "crc", "codec": "attributes"}.get(error.reason)
        if field == "crc":
            right = batch_crc(data, start, header.size_bytes)
            return {"crc": f"wrong: the CRC-32C of the bytes is {right} ({right:#010x})"}
        return {field or "record_count": error.message}
    return {}


def _attributes(attributes: int) -> str:
    codec = attributes & 7
    words = [f"codec {Codec(codec).name.lower()}" if codec in set(Codec) else f"codec {codec}?"]
    words.append("log append time" if attributes & 8 else "create time")
    words += ["transactional"] if attributes & 0x10 else []
    words += ["control"] if attributes & 0x20 else []
    words += ["delete horizon"] if attributes & 0x40 else []
    return ", ".join(words)


def show_time(timestamp_ms: int) -> str:
    """A timestamp as a date in UTC, or why it is none."""
    if timestamp_ms == -1:
        return "none"
    try:
        when = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return "outside the years 1 to 9999"
    return when.strftime("%Y-%m-%d %H:%M:%S.") + f"{when.microsecond // 1000:03}Z"


def _records(
    header: BatchHeader,
    data: Buffer,
    start: int,
    end: int,
    *,
    prefix: str,
    limits: Limits,
    values: ValueDissector | None,
) -> tuple[Span, ...]:
    codec = header.attributes & 7
    if codec == 0:
        spans = dissect_records(
            data, start, end, header=header, prefix=prefix, limits=limits, values=values
        )
        return tuple(spans)
    payload = Span(start, end, f"{prefix}.payload", "bytes", note=f"{end - start} bytes compressed")
    try:
        plain = decompress(
            memoryview(data)[start:end], Codec(codec), limit_bytes=limits.decompressed_bytes_max
        )
    except (CompressionError, ValueError) as error:
        return (Span(start, end, f"{prefix}.payload", "bytes", fault=str(error)),)
    children = dissect_records(
        plain, 0, len(plain), header=header, prefix=prefix, limits=limits, values=values
    )
    inner = Span(
        0,
        len(plain),
        f"{prefix}.decompressed",
        "bytes",
        note=f"{len(plain)} bytes; positions below count in them",
        children=tuple(children),
        buffer=plain,
    )
    return (payload, inner)
