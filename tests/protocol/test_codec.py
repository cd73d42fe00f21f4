"""The compiled codec gives and takes what the declared one does; bad bytes fail alike."""

from __future__ import annotations

import ast
import uuid
from typing import Any, cast

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from millrace_protocol import generated
from millrace_protocol.api import APIS
from millrace_protocol.codec import (
    Decoder,
    Encoder,
    decode,
    decode_leading,
    encode,
    encode_parts,
    entry_count,
)
from millrace_protocol.consumer_protocol import (
    ConsumerAssignment,
    ConsumerSubscription,
    GenerationUserData,
    StickyUserData,
)
from millrace_protocol.errors import WireError
from millrace_protocol.messages.admin import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    NewTopic,
    TopicConfig,
)
from millrace_protocol.messages.error_response import ErrorResponse
from millrace_protocol.messages.fetch import (
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
)
from millrace_protocol.messages.metadata import MetadataRequest
from millrace_protocol.messages.produce import (
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
)
from millrace_protocol.primitives import (
    ARRAY_COUNT_MAX,
    BOOLEAN,
    BYTES,
    FLOAT64,
    INT8,
    INT64,
    NULLABLE_BYTES,
    NULLABLE_STRING,
    STRING,
    UINT16,
    UINT32,
    UUID,
    ArrayOf,
    WireType,
)
from millrace_protocol.reader_source import reader_source
from millrace_protocol.schema import (
    Message,
    Request,
    Struct,
    array_of,
    decode_declared,
    encode_declared,
    message,
    wire,
    wire_fields,
)
from millrace_protocol.writer_source import writer_source


@message
class Inner(Message):
    """An element of `EveryType`."""

    small: int = wire(INT8, "an int8")
    flag: bool = wire(BOOLEAN, "a boolean between numbers")
    later: int = wire(UINT16, "of version 1, before another field", since=1, default=9)
    text: str | None = wire(NULLABLE_STRING, "a string that may be null", default=None)
    flags: tuple[bool, ...] = wire(array_of(BOOLEAN), "booleans", default=())


@message
class EveryType(Message):
    """All the types there are, and fields of version 1 among those of version 0."""

    array_max = 40
    elements_max = 60

    number: int = wire(UINT32, "a uint32")
    ids: tuple[uuid.UUID, ...] = wire(array_of(UUID), "uuids")
    payload: bytes = wire(BYTES, "bytes")
    numbers: tuple[int, ...] | None = wire(array_of(INT64, nullable=True), "integers")
    later: str = wire(STRING, "of version 1", since=1, default="absent")
    inner: tuple[Inner, ...] | None = wire(array_of(Inner, nullable=True), "messages", default=())
    chunks: tuple[bytes | None, ...] = wire(array_of(NULLABLE_BYTES), "nullable bytes", default=())
    ratio: float = wire(FLOAT64, "a float64", default=0.5)
    ratios: tuple[float, ...] = wire(array_of(FLOAT64), "an array of them", default=())


VERSIONED: list[tuple[type[Message], int]] = [
    *(
        (cls, version)
        for api in APIS.values()
        for cls in (api.request, api.response)
        for version in range(api.min_version, api.max_version + 1)
    ),
    (ErrorResponse, 0),
    *((ConsumerSubscription, version) for version in range(4)),
    (ConsumerAssignment, 0),
    *((StickyUserData, version) for version in range(2)),
    (GenerationUserData, 0),
    (EveryType, 0),
    (EveryType, 1),
]
"""Every message that travels, in every version, and one with what none of them has."""


def integers(size: int, *, signed: bool) -> st.SearchStrategy[int]:
    bits = 8 * size
    return (
        st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if signed
        else st.integers(0, 2**bits - 1)
    )


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def values(type_: WireType, version: int) -> st.SearchStrategy[Any]:
    """Every value a wire type can carry."""
    if isinstance(type_, ArrayOf):
        arrays = st.lists(values(type_.element, version), max_size=3).map(tuple)
        return st.none() | arrays if type_.nullable else arrays
    if isinstance(type_, Struct):
        return messages(type_.cls, version)
    match type_.spec_name:
        case "int8" | "int16" | "int32" | "int64":
            return integers(int(type_.spec_name[3:]) // 8, signed=True)
        case "uint16" | "uint32":
            return integers(int(type_.spec_name[4:]) // 8, signed=False)
        case "boolean":
            return st.booleans()
        case "float64":
            return st.floats(allow_nan=False)
        case "string":
            return TEXT
        case "nullable string":
            return st.none() | TEXT
        case "records" | "bytes":
            return st.binary(max_size=40)
        case "nullable bytes":
            return st.none() | st.binary(max_size=40)
        case "uuid":
            return st.uuids()
    raise AssertionError(f"no strategy for {type_.spec_name}")


def messages(cls: type[Message], version: int = 0) -> st.SearchStrategy[Message]:
    """Messages with the fields that `version` carries; the others have their defaults."""
    return st.builds(
        cls, **{name: values(field.type, version) for name, field in wire_fields(cls, version)}
    )


def versioned(of: tuple[type[Message], int]) -> st.SearchStrategy[tuple[Message, int]]:
    cls, version = of
    return messages(cls, version).map(lambda message: (message, version))


def in_steps(cls: type[Message], body: bytes | bytearray, version: int) -> Message:
    decoder = Decoder(cls, body, version)
    while not decoder.step(1):
        pass
    return decoder.result


def in_parts(message: Message, version: int) -> bytes:
    return b"".join(encode_parts(message, version))


def in_encoder_steps(message: Message, version: int) -> bytes:
    encoder = Encoder(message, version)
    while not encoder.step(1):
        pass
    return b"".join(encoder.parts)


def leading(cls: type[Message], body: bytes | bytearray, version: int) -> Message:
    message, end = decode_leading(cls, b"###" + body, version, position=3)
    assert end == 3 + len(body)
    return message


ANY_MESSAGE = st.sampled_from(VERSIONED).flatmap(versioned)


@given(ANY_MESSAGE)
def test_every_message_comes_back_as_it_went(case: tuple[Message, int]) -> None:
    """W-3.1"""
    message, version = case
    body = encode(message, version)
    for decoded in (decode, in_steps, leading, decode_declared):
        assert decoded(type(message), body, version) == message


@given(ANY_MESSAGE)
def test_the_compiled_codec_makes_the_bytes_of_the_declared_one(
    case: tuple[Message, int],
) -> None:
    message, version = case
    expected = encode_declared(message, version)
    for encoded in (encode, in_parts, in_encoder_steps):
        assert encoded(message, version) == expected


@given(ANY_MESSAGE, st.data())
def test_bytes_changed_or_cut_fail_alike_or_mean_the_same(
    case: tuple[Message, int], data: st.DataObject
) -> None:
    message, version = case
    body = bytearray(encode(message, version))
    for _ in range(data.draw(st.integers(0, 3))):
        if body:
            position = data.draw(st.integers(0, len(body) - 1))
            body[position] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    del body[data.draw(st.integers(0, len(body))) :]
    body += data.draw(st.binary(max_size=2))
    cls = type(message)
    try:
        expected: Message | None = decode_declared(cls, body, version)
        error = None
    except WireError as wire_error:
        expected, error = None, wire_error
    for decoded in (decode, in_steps):
        if error is None:
            assert decoded(cls, body, version) == expected
            continue
        with pytest.raises(WireError) as caught:
            decoded(cls, body, version)
        assert str(caught.value) == str(error)
        assert (caught.value.field, caught.value.position) == (error.field, error.position)
        assert 0 <= error.position <= len(body)


def test_a_step_decodes_no_more_elements_than_it_may() -> None:
    entries = tuple(FetchPartition("t", number, 0, 0, 1) for number in range(250))
    request = FetchRequest(0, 1, 2**20, entries)
    decoder = Decoder(FetchRequest, encode(request, 0), 0)
    assert [decoder.step(entries_max) for entries_max in (100, 120, 29, 10)] == [
        False,
        False,
        False,
        True,
    ]
    assert decoder.result == request


def test_a_step_counts_the_elements_of_elements() -> None:
    settings = (TopicConfig("", None),) * 99
    request = CreateTopicsRequest((NewTopic("t", 1, -1, settings),) * 3, False)
    decoder = Decoder(CreateTopicsRequest, encode(request, 0), 0)
    assert [decoder.step(100) for _ in range(4)] == [False, False, False, True]
    encoder = Encoder(request, 0)
    assert [encoder.step(100) for _ in range(4)] == [False, False, False, True]


def test_a_step_counts_long_elements_more_than_once() -> None:
    """A hundred strings of 32 KiB take as long as thousands of short ones."""
    names = ("x" * 10 * 512,) * 20
    body = encode(DeleteTopicsRequest(names), 0)
    decoder = Decoder(DeleteTopicsRequest, body, 0)
    assert [decoder.step(110) for _ in range(3)] == [False, False, True]
    encoder = Encoder(DeleteTopicsRequest(names), 0)
    assert [encoder.step(110) for _ in range(3)] == [False, False, True]


def test_the_result_of_an_unfinished_decoder_is_not_to_be_had() -> None:
    decoder = Decoder(DeleteTopicsRequest, encode(DeleteTopicsRequest(("a", "b")), 0), 0)
    assert not decoder.step(1)
    with pytest.raises(RuntimeError, match="call step"):
        _ = decoder.result


@given(ANY_MESSAGE)
def test_entry_count_bounds_the_elements_of_a_body(case: tuple[Message, int]) -> None:
    message, version = case
    body = encode(message, version)
    decoder = Decoder(type(message), body, version)
    steps = 1
    while not decoder.step(1):
        steps += 1
    assert steps - 1 <= entry_count(type(message), body, version)


def test_entry_count_of_a_produce_is_that_of_its_batches_and_not_of_their_bytes() -> None:
    partitions = tuple(ProducePartition("t", number, bytes(5_000)) for number in range(3))
    body = encode(ProduceRequest(1, 1_000, partitions), 0)
    assert entry_count(ProduceRequest, body, 0) == 3
    assert entry_count(ProduceRequest, body[:4], 0) == 0
    assert entry_count(ProduceRequest, body[:6] + b"\xff" * 4, 0) == 0


@given(ANY_MESSAGE, st.data())
def test_a_body_cut_short_is_refused_at_a_byte_inside_it(
    case: tuple[Message, int], data: st.DataObject
) -> None:
    message, version = case
    body = encode(message, version)
    assume(body and not isinstance(message, StickyUserData))
    cut = body[: data.draw(st.integers(0, len(body) - 1))]
    with pytest.raises(WireError) as caught:
        decode(type(message), cut, version)
    assert 0 <= caught.value.position <= len(cut)


@given(ANY_MESSAGE)
def test_bytes_behind_a_body_are_refused_where_they_begin(case: tuple[Message, int]) -> None:
    """W-2.5"""
    message, version = case
    body = encode(message, version)
    with pytest.raises(WireError, match=r"extra bytes after the .*: 1,") as caught:
        decode(type(message), body + b"\0", version)
    assert caught.value.position == len(body)


@given(st.sampled_from(VERSIONED), st.binary(max_size=60))
def test_any_bytes_at_all_are_a_message_or_a_wire_error(
    of: tuple[type[Message], int], body: bytes
) -> None:
    cls, version = of
    try:
        message = decode(cls, body, version)
    except WireError:
        return
    assert encode(message, version) == body


def test_records_are_views_of_the_body_and_not_copies() -> None:
    request = ProduceRequest(1, 1000, (ProducePartition("clicks", 0, b"batch"),))
    body = bytearray(encode(request, 0))
    decoded = decode(ProduceRequest, body, 0)
    body[-1:] = b"H"
    assert bytes(decoded.partitions[0].records) == b"batcH"


def test_parts_of_a_produce_request_hold_the_callers_own_buffers() -> None:
    batches = [bytearray(b"one"), bytearray(b"two")]
    request = ProduceRequest(
        -1, 1000, tuple(ProducePartition("t", i, memoryview(b)) for i, b in enumerate(batches))
    )
    parts = encode_parts(request, 0)
    assert b"".join(parts) == encode(request, 0)
    assert [part.obj for part in parts if isinstance(part, memoryview)] == batches
    assert len(parts) == 4
    assert b"".join(encode_parts(ProduceRequest(1, 5, ()), 0)) == encode(
        ProduceRequest(1, 5, ()), 0
    )


class Slice:
    """Bytes that are elsewhere: in a file."""

    def __len__(self) -> int:
        return 70_000


@pytest.mark.parametrize("entries_max", [1, 2, 100])
def test_a_fetch_response_may_hold_slices_of_files_for_records(entries_max: int) -> None:
    slices = [Slice(), Slice()]
    results = tuple(
        FetchPartitionResult("t", number, 0, None, 8, 0, -1, cast(memoryview, records))
        for number, records in enumerate([slices[0], b"", slices[1]])
    )
    encoder = Encoder(FetchResponse(results), 0)
    while not encoder.step(entries_max):
        pass
    for parts in (encoder.parts, encode_parts(FetchResponse(results), 0)):
        assert [part for part in parts if isinstance(part, Slice)] == slices
        body = b"".join(bytes(70_000) if isinstance(part, Slice) else part for part in parts)
        assert [len(each.records) for each in decode(FetchResponse, body, 0).partitions] == [
            70_000,
            0,
            70_000,
        ]


@pytest.mark.parametrize(
    "message",
    [
        ProduceRequest(2**15, 0, ()),
        ProduceRequest(1, 0, (ProducePartition("x" * 32_768, 0, b""),)),
        FetchRequest(0, 0, 0, (FetchPartition("t", 2**31, -1, 0, 0),)),
        ProduceResponse((ProducePartitionResult("t", 0, 0, "x" * 40_000, 0, 0, 0),)),
        FetchResponse((FetchPartitionResult("t", 0, 99_999, None, 0, 0, -1, b""),)),
        FetchRequest(0, 0, 0, (FetchPartition("t", 0, -1, 0, 0),) * (ARRAY_COUNT_MAX + 1)),
    ],
    ids=["int16", "long topic", "int32", "long message", "error code", "long array"],
)
def test_a_value_that_does_not_fit_is_refused_by_all(message: Message) -> None:
    for encoded in (encode_declared, encode, in_parts, in_encoder_steps):
        with pytest.raises(ValueError):
            encoded(message, 0)


@pytest.mark.parametrize("cls", [FetchResponse, ProduceResponse])
def test_an_array_longer_than_its_limit_is_refused_before_it_is_read(cls: type[Message]) -> None:
    """W-3.5"""
    body = (ARRAY_COUNT_MAX + 1).to_bytes(4, "big") + bytes(ARRAY_COUNT_MAX + 1)
    with pytest.raises(WireError, match="at most 100,000 allowed") as caught:
        decode(cls, body, 0)
    assert caught.value.position == 0


def test_a_short_frame_cannot_ask_for_two_billion_elements() -> None:
    """W-3.5"""
    with pytest.raises(WireError, match="of 2,147,483,647 elements, 4 bytes follow"):
        decode(ProduceResponse, b"\x7f\xff\xff\xff\0\0\0\0", 0)


def test_nested_arrays_of_a_request_are_bounded_together() -> None:
    """W-3.5"""
    settings = (TopicConfig("", None),) * 1_500
    topics = (NewTopic("t", 1, -1, settings),) * 3
    body = encode(CreateTopicsRequest(topics, False), 0)
    with pytest.raises(WireError, match=r"^topics.2..configs: .*than 4,000 elements") as caught:
        decode(CreateTopicsRequest, body, 0)
    assert caught.value.position == 4 + 3 * (3 + 4 + 2) + 2 * (4 + 1_500 * 4 + 4)
    assert decode(CreateTopicsRequest, encode(CreateTopicsRequest(topics[:2], True), 0), 0)


@pytest.mark.parametrize("cls", [FetchRequest, ProduceRequest])
def test_a_request_is_bounded_by_the_elements_a_broker_decodes(cls: type[Request]) -> None:
    """W-3.5"""
    head = {FetchRequest: 12, ProduceRequest: 6}[cls]
    body = bytes(head) + (cls.array_max + 1).to_bytes(4, "big") + bytes(cls.array_max + 1)
    with pytest.raises(WireError, match=r"^partitions: array of 2,001 elements, at most 2,000"):
        decode(cls, body, 0)


@pytest.mark.parametrize(
    ("body", "field", "reason", "position"),
    [
        (b"\0\0\0\x01\0\x09ab", "topics[0]", "string takes 9 bytes, 2 follow", 6),
        (b"\0\0\0\x01\xff\xffa", "topics[0]", "string has a length of -1", 4),
        (b"\0\0\0\x02\0\x01a\0", "topics[1]", "int16 takes 2 bytes, 1 follow", 7),
        (b"\0\0\0\x01\0\x02\xc3\x28", "topics[0]", "string is not UTF-8: ", 6),
    ],
)
def test_an_error_names_the_field_and_the_byte(
    body: bytes, field: str, reason: str, position: int
) -> None:
    with pytest.raises(WireError) as caught:
        decode(MetadataRequest, body, 0)
    assert caught.value.reason.startswith(f"{field}: {reason}")
    assert (caught.value.field, caught.value.position) == (field, position)
    assert str(caught.value) == f"{caught.value.reason}, at byte {position}"


@pytest.mark.parametrize(("cls", "version"), VERSIONED)
def test_generated_source_is_python_that_a_person_can_print(
    cls: type[Message], version: int
) -> None:
    for in_steps in (False, True):
        for text in (
            reader_source(cls, version, in_steps=in_steps),
            writer_source(cls, version, in_steps=in_steps),
        ):
            ast.parse(str(text))


def test_the_debug_aid_prints_the_generated_functions(capsys: pytest.CaptureFixture[str]) -> None:
    assert generated.main(["FetchRequest"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\ndef ") + printed.startswith("def ") == 4
    assert "FetchPartition(partitions_topic, " in printed
    assert generated.main(["NoSuchMessage"]) == 2
    assert "FetchRequest" in capsys.readouterr().out
