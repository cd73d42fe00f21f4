"""Every decoder of broker and client, each as a function of bytes that may raise nothing.

A target catches the typed errors of its decoder, and those alone; whatever else is raised is a
find. Where a decoder has an inverse, what was decoded must become the same bytes again; where
there are two decoders of one thing, they must agree.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from millrace_cli.exits import InputError
from millrace_cli.formats.exchange import ExchangeError, read_exchange, write_exchange
from millrace_cli.formats.input_format import Format, Reader
from millrace_cli.formats.request_line import RequestError, read_request
from millrace_protocol.api import APIS
from millrace_protocol.codec import decode, encode
from millrace_protocol.consumer_protocol import (
    ConsumerAssignment,
    ConsumerSubscription,
    StickyUserData,
    TopicPartitions,
    decode_assignment,
    decode_sticky_user_data,
    decode_subscription,
    encode_assignment,
    encode_sticky_user_data,
    encode_subscription,
)
from millrace_protocol.dissect import (
    CaptureError,
    HexError,
    dissect,
    dissect_hex,
    dissect_index,
    dissect_segment,
    dissect_time_index,
    render,
)
from millrace_protocol.errors import WireError
from millrace_protocol.framing import (
    HEADER_SIZE,
    FrameSplitter,
    read_request_header,
    read_response_header,
    request_frame,
    response_header,
)
from millrace_protocol.messages.error_response import ErrorResponse
from millrace_protocol.metadata_records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    QuorumVoter,
    RegisterBrokerRecord,
    VotersRecord,
    encode_metadata_record,
)
from millrace_protocol.records import (
    BatchTooLarge,
    Codec,
    CompressionError,
    CorruptBatch,
    check_batch,
    check_batches,
    check_produced_batch,
    compress,
    decode_fetch,
    decode_records,
    decompress,
)
from millrace_protocol.schema import Message
from millrace_server.config import ConfigError
from millrace_server.config_sources import load
from millrace_server.log.checkpoint import Checkpoint, ClosedSegment
from millrace_server.log.offset_index import OffsetIndex
from millrace_server.log.producers import Producers
from millrace_server.log.recovery_point import RECOVERY_POINT_SIZE, RecoveryPoint
from millrace_server.log.time_index import TimeIndex
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.records import UnreadableMetadata, decode_record
from millrace_server.metadata.snapshot import TornSnapshot, decode_snapshot, encode_snapshot
from tests.fuzz.mutation import INPUT_BYTES_MAX
from tests.fuzz.samples import FRAMES, batches, body, resealed

DECOMPRESSED_BYTES_MAX = 1 << 20
SHOWN_BYTES_MAX = 1024
"""Every byte is shown in a line or two."""
"""What a target lets bytes expand to."""


@dataclass(frozen=True, slots=True)
class Target:
    """A decoder and right inputs for it. `run` raises when it finds something."""

    name: str
    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    bytes_max: int = INPUT_BYTES_MAX
    """Of an input; less where a longer one is only more of the same."""


def _request_header(data: bytes) -> None:
    try:
        header = read_request_header(data)
    except WireError:
        return
    again = request_frame(
        api=header.api,
        version=header.version,
        correlation_id=header.correlation_id,
        client_id=header.client_id.encode(),
        body=data[header.body_position :],
    )
    assert again[4:] == data[4:]


def _response_header(data: bytes) -> None:
    try:
        header = read_response_header(data)
    except WireError:
        return
    again = response_header(
        api=header.api,
        version=header.version,
        correlation_id=header.correlation_id,
        body_size=len(data) - HEADER_SIZE,
        error_code=header.error_code,
    )
    assert again[4:] == data[4:HEADER_SIZE]


def _splitter(data: bytes) -> None:
    whole = FrameSplitter(4096)
    pieces = FrameSplitter(4096)
    found: list[bytes] = []
    try:
        expected = whole.feed(data)
    except WireError:
        expected = None
    try:
        for start in range(0, len(data), 7):
            found += pieces.feed(data[start : start + 7])
    except WireError:
        assert expected is None
        return
    assert found == expected
    assert pieces.pending_bytes <= 4096 + 4


def _body(cls: type[Message], data: bytes) -> None:
    try:
        message = decode(cls, memoryview(bytearray(data)), 0)
    except WireError as error:
        assert 0 <= error.position <= len(data), error
        return
    assert encode(message, 0) == data


def _group_talk(data: bytes) -> None:
    with suppress(WireError):
        subscription = decode_subscription(data)
        assert decode_subscription(encode_subscription(subscription)) == subscription
    with suppress(WireError):
        assignment = decode_assignment(data)
        assert decode_assignment(encode_assignment(assignment)) == assignment
    with suppress(WireError):
        user_data = decode_sticky_user_data(data)
        assert decode_sticky_user_data(encode_sticky_user_data(user_data)) == user_data


def _batch(data: bytes) -> None:
    for candidate in (data, resealed(data)):
        try:
            checked = check_batch(candidate)
            assert checked.size_bytes <= len(candidate)
        except CorruptBatch:
            checked = None
        positions, fault = check_batches(candidate)
        assert (checked is not None) == bool(positions)
        assert fault is None or fault.position not in positions
        try:
            header = check_produced_batch(candidate, max_bytes=2048)
        except (CorruptBatch, BatchTooLarge):
            continue
        assert checked == header
        assert header.size_bytes == len(candidate)
        assert header.record_count == header.last_offset_delta + 1


def _fetch(data: bytes) -> None:
    for candidate in (data, resealed(data)):
        with suppress(CorruptBatch):
            for records, next_offset in decode_fetch(candidate, limit_bytes=DECOMPRESSED_BYTES_MAX):
                offsets = [record[0] for record in records]
                assert offsets == sorted(set(offsets))
                assert not offsets or 0 <= offsets[0] <= offsets[-1] < next_offset
        with suppress(CorruptBatch):
            decode_records(candidate, limit_bytes=DECOMPRESSED_BYTES_MAX)


def _arrow(data: bytes) -> None:
    from millrace_protocol.records.arrow import decode_arrow

    for candidate in (data, resealed(data)):
        try:
            table = decode_arrow(candidate, limit_bytes=DECOMPRESSED_BYTES_MAX)
        except CorruptBatch:
            table = None
        try:
            rows = [
                record
                for records, _ in decode_fetch(candidate, limit_bytes=DECOMPRESSED_BYTES_MAX)
                for record in records
            ]
        except CorruptBatch:
            assert table is None, "Arrow columns from a batch that records cannot be read from"
            continue
        assert table is not None, "records from a batch that Arrow columns cannot be read from"
        table.validate(full=True)
        assert table.column("offset").to_pylist() == [row[0] for row in rows]
        assert table.column("key").to_pylist() == [row[2] for row in rows]
        assert table.column("value").to_pylist() == [row[3] for row in rows]


def _decompress(codec: Codec, data: bytes) -> None:
    try:
        plain = decompress(data, codec, limit_bytes=DECOMPRESSED_BYTES_MAX)
    except CompressionError:
        return
    assert len(plain) <= DECOMPRESSED_BYTES_MAX
    again = compress(plain, codec)
    assert decompress(again, codec, limit_bytes=DECOMPRESSED_BYTES_MAX) == plain


def shown(data: bytes, file_name: str = "") -> None:
    try:
        for line in render(dissect(data, file_name=file_name), data):
            assert "\x1b" not in line and "\n" not in line
    except CaptureError:
        return


def _hex(data: bytes) -> None:
    try:
        for line in render(dissect_hex(data.decode("utf-8", "replace"))):
            assert "\x1b" not in line
    except (HexError, CaptureError):
        return


def _segment_file(data: bytes) -> None:
    for candidate in (data, resealed(data)):
        for line in render(dissect_segment(candidate), candidate):
            assert "\x1b" not in line and "\n" not in line


def _index_files(data: bytes) -> None:
    list(render(dissect_index(data, base_offset=5), data))
    list(render(dissect_time_index(data, base_offset=5), data))
    offsets = OffsetIndex.decode(data, end_position=1 << 20)
    if offsets is not None:
        assert offsets.encode() == data
        assert offsets.floor_offset(2**31 - 1)[1] < 1 << 20
        offsets.floor_position(-1)
    times = TimeIndex.decode(data)
    if times is not None:
        assert times.encode() == data
        times.floor_timestamp(0)
        times.floor_offset(0)


def _checkpoint(data: bytes) -> None:
    import crc32c

    fitted = data[:8] + struct.pack(">I", crc32c.crc32c(data[12:])) + data[12:]
    for candidate in (data, fitted):
        checkpoint = Checkpoint.decode(candidate)
        if checkpoint is None:
            continue
        try:
            producers = checkpoint.restore_producers()
        except struct.error:
            continue
        assert len(producers) <= len(candidate)


def _recovery_point(data: bytes) -> None:
    """Also with a checksum that fits, behind which the fields are read."""
    import crc32c

    crc = struct.pack(">I", crc32c.crc32c(data[12:RECOVERY_POINT_SIZE]))
    for candidate in (data, data[:8] + crc + data[12:]):
        mark = RecoveryPoint.decode(candidate)
        if mark is not None:
            assert mark.encode() == candidate[:RECOVERY_POINT_SIZE]


def _producers(data: bytes) -> None:
    try:
        producers = Producers.decode(data)
    except struct.error:
        return
    Producers.decode(producers.encode())


def _metadata_record(data: bytes) -> None:
    try:
        record = decode_record(data)
    except UnreadableMetadata:
        return
    assert encode_metadata_record(record) == data


def _snapshot(data: bytes) -> None:
    with suppress(TornSnapshot, UnreadableMetadata):
        decode_snapshot(data, end_offset=7)


def _toml(data: bytes) -> None:
    try:
        load(toml=data.decode("utf-8", "replace"), toml_name="fuzz.toml", environment={}, flags={})
    except ConfigError:
        return


def _environment(data: bytes) -> None:
    variables = (line.partition("=") for line in data.decode("utf-8", "replace").splitlines())
    environment = {f"MILLRACE_{name}": value for name, _, value in variables}
    try:
        load(toml=None, toml_name="", environment=environment, flags={})
    except ConfigError:
        return


def _request_line(data: bytes) -> None:
    try:
        api, version, request = read_request(data.decode("utf-8", "replace"), now_ms=1_000)
    except RequestError:
        return
    try:
        body = encode(request, version)
    except ValueError:
        return  # What a person typed does not fit its field.
    assert decode(api.request, body, version) == request


def _typed_records(data: bytes) -> None:
    lines = data.splitlines(keepends=True)
    for format_ in Format:
        separator = b":" if format_ is Format.LINES else b""
        field = "" if format_ is Format.LINES else "k"
        reader = Reader("fuzz", format_, key_separator=separator, key_field=field)
        timed = Reader("fuzz", format_, timestamp_field=field and "t")
        for one in (reader, timed):
            with suppress(InputError):
                columns = one.read(lines, 1)
                assert columns.keys is None or len(columns.keys) == len(columns.values)


def _exchange(data: bytes) -> None:
    try:
        passed = read_exchange(data.decode("utf-8", "replace"))
    except ExchangeError:
        return
    assert read_exchange("\n".join(write_exchange(passed))) == passed


def _body_targets() -> list[Target]:
    classes: list[type[Message]] = [ErrorResponse]
    for api in APIS.values():
        classes += (api.request, api.response)
    return [Target(f"body {cls.__name__}", partial(_body, cls), (body(cls),)) for cls in classes]


def pcap(packets: tuple[bytes, ...]) -> bytes:
    made = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101)
    for number, payload in enumerate(packets):
        tcp = struct.pack(">HHIIBBHHH", 5000, 9092, 1, 0, 5 << 4, 0x18, 0, 0, 0) + payload
        ip = struct.pack(">BBHHHBBH8s", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0, bytes(8)) + tcp
        made += struct.pack("<IIII", number, 0, len(ip), len(ip)) + ip
    return made


def _checkpoint_seed() -> bytes:
    producers = struct.pack(">qhBq", 7, 1, 1, 9) + struct.pack(">iiqqq", 0, 1, 0, 1, -1)
    closed = (ClosedSegment(0, 100, 5), ClosedSegment(10, 100, 6))
    return Checkpoint(0, 20, 20, 0, 7, 0, closed, producers, True).encode()


_OWNED = (TopicPartitions("clicks", (0, 1, 2)), TopicPartitions("views", (7,)))
_USER_DATA = encode_sticky_user_data(StickyUserData(_OWNED, 5))
_GROUP_TALK = (
    encode_subscription(ConsumerSubscription(("clicks", "views"), _USER_DATA, _OWNED, 5, "rack")),
    encode_subscription(ConsumerSubscription(("clicks",), None), 0),
    encode_assignment(ConsumerAssignment(_OWNED, b"")),
    _USER_DATA,
)
_PAYLOAD = b"a payload that repeats, a payload that repeats" * 8
_METADATA = tuple(
    encode_metadata_record(record)
    for record in (
        RegisterBrokerRecord(1, 2, UUID(int=3), "host", 9092, None, (UUID(int=4),)),
        PartitionRecord(UUID(int=5), 0, (1, 2), (1,), 1, 0, 0, (UUID(int=4), UUID(int=0)), (2,)),
        PartitionChangeRecord(UUID(int=5), 0, None, (1,), -2, None, (2,), ()),
        VotersRecord((QuorumVoter(1, UUID(int=4), "host", 9093),)),
        ConfigRecord(UUID(int=5), "retention.ms", "1"),
    )
)
_SNAPSHOT = encode_snapshot(ClusterImage(7, UUID(int=1), 1, next_producer_id=9), now_ms=1)
_TOML = b"""data = "d"
listen = "127.0.0.1:9092"
insecure_listen = false
partitions = 3
[topic]
"retention.ms" = 86400000
durability = "os"
[limits]
connections_max = 20000
"""
_ENVIRONMENT = b"LISTEN=[::1]:9\nLIMITS__CONNECTIONS_MAX=5\nTOPIC__RETENTION_MS=1\nLOOP=asyncio"
_LINES = (
    b'fetch partitions={"topic": "clicks", "fetch_offset": 7} max_wait_ms=5',
    b'produce partitions={"topic": "c", "records": ["a", {"key": "k", "value": null}]}',
    b"create_topics@0 topics=clicks",
    b"hello software=x",
)
_RECORDS = (
    b'{"k": "a", "t": 1500}\n{"k": {"id": 7}, "t": "2013-01-01T10:00:00Z"}\n{"k": null, "t": 1}\n',
    b'k,t,v\n"a ""b""",1500,x\nc,2013-01-01 10:00,"two\nlines"\n',
    b"key:value\nno key\n\n:empty key\r\n",
)
_EXCHANGE = b"# millrace exchange\n# Hello\n> 0000001d 4d52 0012\n< 00 01 02\n"
TARGETS = (
    Target("request header", _request_header, FRAMES),
    Target("response header", _response_header, FRAMES),
    Target("frame splitter", _splitter, (b"".join(FRAMES[:3]), *FRAMES)),
    *_body_targets(),
    Target("what group members say", _group_talk, _GROUP_TALK),
    Target("batch checks", _batch, batches()),
    Target("fetched records", _fetch, batches()),
    Target("fetched columns", _arrow, batches()),
    *(
        Target(
            f"decompress {codec.name}", partial(_decompress, codec), (compress(_PAYLOAD, codec),)
        )
        for codec in Codec
    ),
    Target("dissect a stream", shown, FRAMES, SHOWN_BYTES_MAX),
    Target("dissect a capture", shown, (pcap(FRAMES[:4]), pcap(FRAMES[4:])), SHOWN_BYTES_MAX),
    Target("dissect hex", _hex, tuple(frame.hex(" ").encode() for frame in FRAMES)),
    Target("dissect a segment", _segment_file, batches(), SHOWN_BYTES_MAX),
    Target(
        "index files",
        _index_files,
        (struct.pack(">iiii", 1, 100, 5, 900), struct.pack(">qiqi", 5, 1, 6, 9)),
        200,
    ),
    Target("recovery point", _recovery_point, (RecoveryPoint(9, 5, 900).encode(),)),
    Target("checkpoint", _checkpoint, (_checkpoint_seed(),)),
    Target("producers", _producers, (_checkpoint_seed()[-55:],)),
    Target("metadata record", _metadata_record, _METADATA),
    Target("metadata snapshot", _snapshot, (_SNAPSHOT,)),
    Target("configuration file", _toml, (_TOML,)),
    Target("configuration environment", _environment, (_ENVIRONMENT,)),
    Target("request line", _request_line, _LINES),
    Target("records in files", _typed_records, _RECORDS),
    Target("saved exchange", _exchange, (_EXCHANGE,)),
)
