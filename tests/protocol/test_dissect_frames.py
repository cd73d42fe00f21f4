"""The dissector of streams: complete, exact about faults, and never raising."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millrace_protocol.api import APIS, ApiKey
from millrace_protocol.codec import encode
from millrace_protocol.dissect import Limits, Span, dissect_frames, render
from millrace_protocol.errors import ErrorCode
from millrace_protocol.framing import error_frame, request_frame, response_frame
from millrace_protocol.messages.error_response import ErrorResponse
from millrace_protocol.messages.fetch import FetchPartition, FetchRequest
from millrace_protocol.messages.metadata import MetadataRequest
from millrace_protocol.spec.examples import EXAMPLES

FETCH = request_frame(
    api=ApiKey.FETCH,
    version=0,
    correlation_id=7,
    client_id=b"cli",
    body=encode(FetchRequest(500, 1, 1000, (FetchPartition("clicks", 0, -1, 5, 6),)), 0),
)


def covered(span: Span) -> list[tuple[int, int]]:
    """The bytes of the leaves that count in the outermost buffer, in order."""
    if span.buffer is not None and span.name.endswith(".decompressed"):
        return []
    if not span.children:
        return [(span.start, span.end)]
    return [piece for child in span.children for piece in covered(child)]


def assert_every_byte_is_explained_once(spans: list[Span], size: int) -> None:
    position = 0
    for start, end in (piece for span in spans for piece in covered(span)):
        assert start == position
        position = end
    assert position == size


def test_a_request_is_shown_field_by_field() -> None:
    """W-2.2"""
    (span,) = dissect_frames(FETCH)
    assert span.name == "Fetch request v0 #7"
    shown = {leaf.name: leaf.value for leaf in span.leaves()}
    assert shown == {
        "length": len(FETCH) - 4,
        "magic": b"MR",
        "api": 1,
        "version": 0,
        "correlation_id": 7,
        "client_id.size": 3,
        "client_id": "cli",
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 1000,
        "partitions.count": 1,
        "partitions[0].topic": "clicks",
        "partitions[0].partition": 0,
        "partitions[0].leader_epoch": -1,
        "partitions[0].fetch_offset": 5,
        "partitions[0].max_bytes": 6,
        "rack": None,
    }


def test_every_byte_of_every_example_is_explained_once() -> None:
    for name, example in EXAMPLES.items():
        spans = list(dissect_frames(example))
        assert not [fault for span in spans for fault in span.faults()], name
        assert_every_byte_is_explained_once(spans, len(example))


def test_a_stream_may_mix_requests_and_responses() -> None:
    """W-2.3"""
    refusal = error_frame(
        api=99,
        version=3,
        correlation_id=8,
        error_code=ErrorCode.UNKNOWN_API,
        response=ErrorResponse("no"),
    )
    empty = response_frame(api=44, version=0, correlation_id=9, body=bytes(4))
    spans = list(dissect_frames(FETCH + refusal + empty))
    assert [span.name for span in spans] == [
        "Fetch request v0 #7",
        "api 99 response v3 #8 UNKNOWN_API",
        "AlterConfigs response v0 #9",
    ]
    assert_every_byte_is_explained_once(spans, len(FETCH + refusal + empty))


def test_a_broken_field_is_shown_up_to_the_byte_where_it_goes_wrong() -> None:
    broken = bytearray(FETCH)
    broken[37] = 0xFF  # the first byte of "clicks", whose length is at 35
    (span,) = dissect_frames(broken)
    (fault,) = [leaf for leaf in span.leaves() if leaf.fault]
    assert (fault.start, fault.name) == (37, "partitions[0].topic")
    assert "not UTF-8" in fault.fault
    assert_every_byte_is_explained_once([span], len(broken))


def test_a_wrong_magic_is_named_with_its_place() -> None:
    """W-2.1"""
    (span,) = dissect_frames(FETCH[:4] + b"XX" + FETCH[6:])
    assert [(leaf.name, leaf.start) for leaf in span.leaves()] == [("length", 0), ("?", 4)]
    assert span.fault == "magic is b'XX', b'MR' needed: this is no frame"


def test_a_frame_cut_short_says_how_many_bytes_are_missing() -> None:
    (span,) = dissect_frames(FETCH[:-5])
    assert span.fault == f"cut short: 5 of {len(FETCH)} bytes are missing"


def test_bytes_behind_a_body_are_a_fault() -> None:
    """W-2.5"""
    body = encode(MetadataRequest(()), 0) + b"\xaa\xbb"
    frame = request_frame(api=3, version=0, correlation_id=1, client_id=b"", body=body)
    (span,) = dissect_frames(frame)
    assert span.fault == "bytes follow the MetadataRequest"
    assert next(iter(span.faults())).start == 0


def test_an_unknown_version_keeps_its_header_and_is_not_guessed_at() -> None:
    frame = request_frame(api=1, version=77, correlation_id=1, client_id=b"c", body=b"???")
    (span,) = dissect_frames(frame)
    assert span.find("client_id") is not None
    body = span.find("body")
    assert body is not None and "not decoded" in body.fault


def test_lines_of_the_text_dialect_are_lines() -> None:
    """W-8"""
    spans = list(dissect_frames(b"FETCH clicks 0 0\nQUIT\r\n"))
    assert [span.value for span in spans] == ["FETCH clicks 0 0", "QUIT"]


def test_long_arrays_are_counted_and_not_listed() -> None:
    request = MetadataRequest(tuple(f"topic-{i}" for i in range(50)))
    frame = request_frame(
        api=3, version=0, correlation_id=1, client_id=b"", body=encode(request, 0)
    )
    (span,) = dissect_frames(frame, limits=Limits(elements_max=3))
    assert not span.fault
    skipped = list(span.leaves())[-1]
    assert (skipped.name, skipped.note) == ("topics[3...]", "47 more not shown")
    assert_every_byte_is_explained_once([span], len(frame))


def test_control_characters_of_a_peer_are_escaped() -> None:
    evil = "\x1b[2J\u202e" * 100
    frame = request_frame(
        api=3,
        version=0,
        correlation_id=1,
        client_id=b"\x1b[31m",
        body=encode(MetadataRequest((evil,)), 0),
    )
    lines = list(render(dissect_frames(frame + b"HELP \x1b[2J\n")))
    assert all(line.isprintable() and line.isascii() and len(line) < 240 for line in lines)
    assert any("\\x1b[2J" in line for line in lines)


@given(st.binary(max_size=200))
def test_any_bytes_at_all_are_explained_without_raising(data: bytes) -> None:
    spans = list(dissect_frames(data))
    assert_every_byte_is_explained_once(spans, len(data))
    assert all(line.isprintable() for line in render(spans))


@given(st.sampled_from(sorted(EXAMPLES)), st.data())
def test_examples_with_bytes_changed_are_explained_without_raising(
    name: str, data: st.DataObject
) -> None:
    frame = bytearray(EXAMPLES[name])
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(4, len(frame) - 1))] = data.draw(st.integers(0, 255))
    del frame[data.draw(st.integers(1, len(frame))) :]
    spans = list(dissect_frames(frame))
    assert_every_byte_is_explained_once(spans, len(frame))
    assert all(line.isprintable() for line in render(spans))


def test_every_api_has_examples_of_both_directions() -> None:
    assert set(EXAMPLES) >= {
        f"{key.name.lower().replace('_', '-')}-{way}"
        for key in APIS
        for way in ("request", "response")
    }
