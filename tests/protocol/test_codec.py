"""The declared codec and the fast ones give and take the same; bad bytes fail alike."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from millrace_protocol import hot
from millrace_protocol.api import APIS
from millrace_protocol.codec import Decoder, Encoder, decode, decode_in_pieces, encode, encode_parts
from millrace_protocol.compiled import encode_body
from millrace_protocol.errors import WireError
from millrace_protocol.messages.admin import CreateTopicsRequest, NewTopic, TopicConfig
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
from millrace_protocol.messages.refusal import Refusal
from millrace_protocol.primitives import ARRAY_COUNT_MAX, ArrayOf, WireType
from millrace_protocol.schema import (
    Message,
    Request,
    Struct,
    decode_declared,
    encode_declared,
    wire_fields,
)

MESSAGES = [cls for api in APIS.values() for cls in (api.request, api.response)] + [Refusal]
HOT = [ProduceRequest, ProduceResponse, FetchRequest, FetchResponse]


def integers(size: int, *, signed: bool) -> st.SearchStrategy[int]:
    bits = 8 * size
    return (
        st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if signed
        else st.integers(0, 2**bits - 1)
    )


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def values(type_: WireType) -> st.SearchStrategy[Any]:
    """Every value a wire type can carry."""
    if isinstance(type_, ArrayOf):
        arrays = st.lists(values(type_.element), max_size=3).map(tuple)
        return st.none() | arrays if type_.nullable else arrays
    if isinstance(type_, Struct):
        return messages(type_.cls)
    match type_.spec_name:
        case "int8" | "int16" | "int32" | "int64":
            return integers(int(type_.spec_name[3:]) // 8, signed=True)
        case "boolean":
            return st.booleans()
        case "string":
            return TEXT
        case "nullable string":
            return st.none() | TEXT
        case "records" | "bytes":
            return st.binary(max_size=40)
        case "uuid":
            return st.uuids()
    raise AssertionError(f"no strategy for {type_.spec_name}")


def messages(cls: type[Message]) -> st.SearchStrategy[Message]:
    return st.builds(cls, **{name: values(field.type) for name, field in wire_fields(cls, 0)})


def whole_in_pieces(cls: type[Message], body: bytes | bytearray, version: int) -> Message:
    """Decodes to the end, as the broker does it for a long body."""
    pieces = decode_in_pieces(cls, body, version)
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            message: Message = end.value
            return message


def in_steps(cls: type[Message], body: bytes | bytearray, version: int) -> Message:
    decoder = Decoder(cls, body, version)
    while not decoder.step(1):
        pass
    return decoder.result


ANY_MESSAGE = st.sampled_from(MESSAGES).flatmap(messages)
HOT_MESSAGE = st.sampled_from(HOT).flatmap(messages)


@given(ANY_MESSAGE)
def test_every_message_comes_back_as_it_went(message: Message) -> None:
    """W-3.1"""
    body = encode(message, 0)
    assert decode(type(message), body, 0) == message
    assert decode_declared(type(message), body, 0) == message


@given(ANY_MESSAGE)
def test_every_message_is_encoded_in_steps_and_in_parts_to_the_same_bytes(message: Message) -> None:
    encoder = Encoder(message, 0)
    while not encoder.step(1):
        pass
    body = encode(message, 0)
    assert b"".join(encoder.parts) == b"".join(encode_parts(message, 0)) == body


@given(ANY_MESSAGE)
def test_all_codecs_make_the_same_bytes(message: Message) -> None:
    assert encode(message, 0) == encode_body(message, 0) == encode_declared(message, 0)


@given(ANY_MESSAGE, st.data())
def test_bytes_changed_or_cut_fail_alike_or_mean_the_same(
    message: Message, data: st.DataObject
) -> None:
    body = bytearray(encode(message, 0))
    for _ in range(data.draw(st.integers(0, 3))):
        if body:
            position = data.draw(st.integers(0, len(body) - 1))
            body[position] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    del body[data.draw(st.integers(0, len(body))) :]
    body += data.draw(st.binary(max_size=2))
    cls = type(message)
    try:
        expected: Message | None = decode_declared(cls, body, 0)
        error = None
    except WireError as wire_error:
        expected, error = None, wire_error
    for decoded in (decode, whole_in_pieces, in_steps):
        if error is None:
            assert decoded(cls, body, 0) == expected
            continue
        with pytest.raises(WireError) as caught:
            decoded(cls, body, 0)
        assert str(caught.value) == str(error)
        assert caught.value.position == error.position
        assert 0 <= error.position <= len(body)


def test_a_long_body_is_decoded_a_piece_at_a_time() -> None:
    entries = tuple(FetchPartition("t", number, 0, 0, 1) for number in range(250))
    request = FetchRequest(0, 1, 2**20, entries)
    pieces = decode_in_pieces(FetchRequest, encode(request, 0), 0)
    assert [next(pieces), next(pieces)] == [None, None]
    with pytest.raises(StopIteration) as end:
        next(pieces)
    assert end.value.value == request


@given(ANY_MESSAGE, st.data())
def test_a_body_cut_short_is_refused_at_a_byte_inside_it(
    message: Message, data: st.DataObject
) -> None:
    body = encode(message, 0)
    assume(body)
    cut = body[: data.draw(st.integers(0, len(body) - 1))]
    with pytest.raises(WireError) as caught:
        decode(type(message), cut, 0)
    assert 0 <= caught.value.position <= len(cut)


@given(ANY_MESSAGE)
def test_bytes_behind_a_body_are_refused_where_they_begin(message: Message) -> None:
    """W-2.5"""
    body = encode(message, 0)
    with pytest.raises(WireError, match=r"extra bytes after the .*: 1") as caught:
        decode(type(message), body + b"\0", 0)
    assert caught.value.position == len(body)


@given(st.sampled_from(MESSAGES), st.binary(max_size=60))
def test_any_bytes_at_all_are_a_message_or_a_wire_error(cls: type[Message], body: bytes) -> None:
    try:
        message = decode(cls, body, 0)
    except WireError:
        return
    assert encode(message, 0) == body


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
    parts = hot.produce_request_parts(request)
    assert b"".join(parts) == encode_body(request, 0)
    assert [part.obj for part in parts if isinstance(part, memoryview)] == batches
    assert b"".join(hot.produce_request_parts(ProduceRequest(1, 5, ()))) == encode_body(
        ProduceRequest(1, 5, ()), 0
    )


@given(st.lists(messages(FetchPartitionResult), max_size=3))
def test_a_fetch_response_can_be_sent_prefix_by_prefix(
    results: list[FetchPartitionResult],
) -> None:
    body = hot.array_count(len(results))
    for result in results:
        fields = {f.name: getattr(result, f.name) for f in dataclasses.fields(result)}
        records = fields.pop("records")
        body += hot.fetch_response_prefix(**fields, records_size=len(records)) + records
    assert body == encode_body(FetchResponse(tuple(results)), 0)


@pytest.mark.parametrize(
    "message",
    [
        ProduceRequest(2**15, 0, ()),
        ProduceRequest(1, 0, (ProducePartition("x" * 32_768, 0, b""),)),
        FetchRequest(0, 0, 0, (FetchPartition("t", 2**31, -1, 0, 0),)),
        ProduceResponse((ProducePartitionResult("t", 0, 0, "x" * 40_000, 0, 0, 0),)),
        FetchResponse((FetchPartitionResult("t", 0, 99_999, None, 0, 0, b""),)),
        FetchRequest(0, 0, 0, (FetchPartition("t", 0, -1, 0, 0),) * (ARRAY_COUNT_MAX + 1)),
    ],
    ids=["int16", "long topic", "int32", "long sentence", "error code", "long array"],
)
def test_a_value_that_does_not_fit_is_refused_by_all(message: Message) -> None:
    with pytest.raises(ValueError):
        encode_declared(message, 0)
    with pytest.raises(ValueError):
        encode_body(message, 0)
    with pytest.raises(ValueError):
        encode(message, 0)


@pytest.mark.parametrize("cls", [FetchResponse, ProduceResponse])
def test_an_array_longer_than_its_limit_is_refused_before_it_is_read(cls: type[Message]) -> None:
    """W-3.5"""
    body = (ARRAY_COUNT_MAX + 1).to_bytes(4, "big") + bytes(ARRAY_COUNT_MAX + 1)
    with pytest.raises(WireError, match="limit is 100000") as caught:
        decode(cls, body, 0)
    assert caught.value.position == 0


def test_a_short_frame_cannot_ask_for_two_billion_elements() -> None:
    """W-3.5"""
    with pytest.raises(WireError, match="2147483647 elements with 4 bytes left"):
        decode(ProduceResponse, b"\x7f\xff\xff\xff\0\0\0\0", 0)


def test_nested_arrays_of_a_request_are_bounded_together() -> None:
    """W-3.5"""
    settings = (TopicConfig("", None),) * 1_500
    topics = (NewTopic("t", 1, -1, settings),) * 3
    body = encode(CreateTopicsRequest(topics, False), 0)
    with pytest.raises(WireError, match="hold more than 4000 elements together") as caught:
        decode(CreateTopicsRequest, body, 0)
    assert caught.value.position == 4 + 3 * (3 + 4 + 2) + 2 * (4 + 1_500 * 4)
    assert decode(CreateTopicsRequest, encode(CreateTopicsRequest(topics[:2], True), 0), 0)


@pytest.mark.parametrize("cls", [FetchRequest, ProduceRequest])
def test_a_request_is_bounded_by_what_a_broker_will_decode(cls: type[Request]) -> None:
    """W-3.5"""
    head = {FetchRequest: 12, ProduceRequest: 6}[cls]
    body = bytes(head) + (cls.array_max + 1).to_bytes(4, "big") + bytes(cls.array_max + 1)
    with pytest.raises(WireError, match="array of 2001 elements; the limit is 2000"):
        decode(cls, body, 0)
