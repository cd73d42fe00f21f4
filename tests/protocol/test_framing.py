"""Frames: header fields, malformed frames, and streams cut at every byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_protocol.api import APIS, ApiKey, negotiate
from millrace_protocol.codec import decode
from millrace_protocol.errors import ErrorCode, WireError
from millrace_protocol.framing import (
    CLIENT_ID_BYTES_MAX,
    HEADER_SIZE,
    FrameSplitter,
    error_frame,
    read_request_header,
    read_response_header,
    request_frame,
    request_prefix,
    response_frame,
    response_header,
)
from millrace_protocol.messages.admin import CreateTopicsRequest
from millrace_protocol.messages.error_response import ErrorResponse
from millrace_protocol.messages.metadata import MetadataRequest
from millrace_protocol.spec.examples import EXAMPLES

U16 = st.integers(0, 2**16 - 1)
API = st.integers(0, 2**15 - 1)
U32 = st.integers(0, 2**32 - 1)
CLIENT_ID = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
FRAME = request_frame(api=3, version=0, correlation_id=7, client_id=b"cli", body=b"body")


@given(API, U16, U32, CLIENT_ID, st.binary(max_size=40))
def test_a_request_header_comes_back_and_the_body_begins_behind_it(
    api: int, version: int, correlation_id: int, client_id: str, body: bytes
) -> None:
    """W-2.2"""
    frame = request_frame(
        api=api,
        version=version,
        correlation_id=correlation_id,
        client_id=client_id.encode(),
        body=body,
    )
    header = read_request_header(frame)
    assert (header.api, header.version, header.correlation_id) == (api, version, correlation_id)
    assert header.client_id == client_id
    assert frame[header.body_position :] == body
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4


@given(API, U16, U32, st.binary(max_size=40), st.integers(-(2**15), 2**15 - 1))
def test_a_response_header_comes_back(
    api: int, version: int, correlation_id: int, body: bytes, error_code: int
) -> None:
    """W-2.3"""
    frame = response_frame(api=api, version=version, correlation_id=correlation_id, body=body)
    header = read_response_header(frame)
    assert (header.api, header.version, header.correlation_id) == (api, version, correlation_id)
    assert header.error_code == 0
    assert frame[HEADER_SIZE:] == body
    other = response_header(
        api=api, version=0, correlation_id=0, body_size=0, error_code=error_code
    )
    assert read_response_header(other).error_code == error_code


def test_a_refusal_carries_its_sentence_and_the_range() -> None:
    """W-2.4"""
    frame = error_frame(
        api=77,
        version=5,
        correlation_id=9,
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        response=ErrorResponse("use 0 to 2", 0, 2),
    )
    header = read_response_header(frame)
    assert (header.api, header.error_code) == (77, ErrorCode.UNSUPPORTED_VERSION)
    assert decode(ErrorResponse, frame[HEADER_SIZE:], 0) == ErrorResponse("use 0 to 2", 0, 2)


@pytest.mark.parametrize(
    ("broken", "position", "reason"),
    [
        (FRAME[:10], 0, "frame header has 10 bytes, 16 needed"),
        (FRAME[:4] + b"RM" + FRAME[6:], 4, "magic is b'RM', b'MR' needed"),
        (FRAME[:6] + b"\x80" + FRAME[7:], 6, "frame is a response, a request is needed"),
        (FRAME[:14] + b"\xff\xff" + FRAME[16:], 14, "client id has -1 bytes"),
        (FRAME[:14] + b"\x01\x00" + FRAME[16:], 14, "client id has 256 bytes"),
        (FRAME[:14] + b"\x00\x08" + FRAME[16:], 16, "client id runs past the end"),
        (FRAME[:17] + b"\xff" + FRAME[18:], 17, "client id is not UTF-8"),
    ],
)
def test_bytes_that_are_no_request_are_refused_with_their_position(
    broken: bytes, position: int, reason: str
) -> None:
    """W-2.1, W-2.2"""
    with pytest.raises(WireError) as caught:
        read_request_header(broken)
    assert caught.value.position == position
    assert caught.value.reason.startswith(reason)


@pytest.mark.parametrize(
    ("broken", "position"), [(FRAME, 6), (FRAME[:15], 0), (b"\0\0\0\x0cXX" + bytes(10), 4)]
)
def test_bytes_that_are_no_response_are_refused_with_their_position(
    broken: bytes, position: int
) -> None:
    """W-2.1, W-2.3"""
    with pytest.raises(WireError) as caught:
        read_response_header(broken)
    assert caught.value.position == position


def test_a_client_id_that_is_too_long_is_refused_before_it_is_sent() -> None:
    """W-6.5"""
    with pytest.raises(ValueError, match="at most 255 allowed"):
        request_prefix(
            api=0,
            version=0,
            correlation_id=0,
            client_id=b"x" * (CLIENT_ID_BYTES_MAX + 1),
            body_size=0,
        )


@given(st.data())
def test_a_stream_cut_anywhere_gives_the_same_frames(data: st.DataObject) -> None:
    frames = data.draw(st.lists(st.sampled_from(sorted(EXAMPLES.values())), max_size=4))
    stream = b"".join(frames)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=8)))
    splitter = FrameSplitter()
    pieces = [
        stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
    ]
    assert [frame for piece in pieces for frame in splitter.feed(piece)] == frames
    assert splitter.pending_bytes == 0


@pytest.mark.parametrize("name", ["hello-request", "error-response"])
def test_a_stream_byte_by_byte_gives_the_frame_with_its_last_byte(name: str) -> None:
    splitter = FrameSplitter()
    *before, last = (splitter.feed(bytes([byte])) for byte in EXAMPLES[name])
    assert not any(before)
    assert last == [EXAMPLES[name]]


@pytest.mark.parametrize("length", [0, 11, 1001, 2**32 - 1])
def test_a_length_out_of_bounds_is_refused_before_anything_is_stored(length: int) -> None:
    """W-2.1, W-6.2"""
    splitter = FrameSplitter(frame_bytes_max=1000)
    with pytest.raises(WireError, match=f"frame length is {length}, 12 to 1000 allowed"):
        splitter.feed(length.to_bytes(4, "big"))


def test_a_boolean_is_zero_or_one() -> None:
    """W-3.2"""
    with pytest.raises(WireError, match="validate_only: boolean is 2, 0 or 1 allowed") as caught:
        decode(CreateTopicsRequest, bytes(4) + b"\x02", 0)
    assert caught.value.position == 4


@pytest.mark.parametrize(
    ("body", "position", "reason"),
    [
        (b"\xff\xff\xff\xfe", 0, "topics: array of -2 elements"),
        (b"\x00\x00\x00\x01\xff\xff", 4, "topics[0]: string has a length of -1"),
        (b"\x00\x00\x00\x01\x00\x02\xc3\x28", 6, "topics[0]: string is not UTF-8"),
        (b"\x00\x00\x00\x01\x00\x09ab", 6, "topics[0]: string takes 9 bytes, 2 follow"),
    ],
)
def test_a_broken_length_or_text_is_refused_at_its_byte(
    body: bytes, position: int, reason: str
) -> None:
    """W-3.3, W-3.5"""
    with pytest.raises(WireError) as caught:
        decode(MetadataRequest, body, 0)
    assert caught.value.position == position
    assert caught.value.reason.startswith(reason)


def test_versions_meet_at_the_highest_that_both_speak() -> None:
    """W-4.1"""
    for key, api in APIS.items():
        assert negotiate(key, api.min_version, 99) == api.max_version
        assert negotiate(key, api.max_version + 1, 99) is None


def test_apis_have_keys_that_fit_beside_the_response_bit() -> None:
    """W-2.3"""
    assert all(0 <= key < 2**15 for key in ApiKey)
    assert set(APIS) == set(ApiKey)
