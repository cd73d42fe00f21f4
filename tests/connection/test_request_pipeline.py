"""The requests of one connection: their order, their bounds, their deadlines, and their end."""

from __future__ import annotations

import pytest

from millrace_protocol.api import APIS
from millrace_protocol.codec import decode
from millrace_protocol.errors import ErrorCode
from millrace_protocol.framing import (
    HEADER,
    MAGIC,
    RESPONSE_BIT,
    error_frame,
    read_request_header,
    response_frame,
)
from millrace_protocol.messages.error_response import ErrorResponse
from millrace_protocol.messages.hello import ApiRange, HelloRequest, HelloResponse
from millrace_protocol.messages.metadata import MetadataRequest
from millrace_protocol.messages.produce import ProducePartition, ProduceRequest
from millrace_wire.errors import (
    ConnectionLost,
    ProtocolViolation,
    RequestRefused,
    RequestTimedOut,
    RequestTooLarge,
    TooManyRequests,
    VersionUnsupported,
)
from millrace_wire.request_pipeline import QUEUED_REQUESTS_MAX, Request, RequestPipeline

ASK = MetadataRequest(())
NEVER_MS = 1 << 40


def hello(*, inflight: int = 64, frame_bytes: int = 1 << 20, apis: bool = True) -> HelloResponse:
    ranges = tuple(ApiRange(key, api.min_version, api.max_version) for key, api in APIS.items())
    return HelloResponse("a", "1", "c", 7, frame_bytes, inflight, ranges if apis else ())


def pipeline(*, inflight: int = 64, inflight_bytes_max: int = 1 << 20) -> RequestPipeline[str]:
    made: RequestPipeline[str] = RequestPipeline(
        "b:1", client_id="test", inflight_bytes_max=inflight_bytes_max
    )
    made.on_hello(hello(inflight=inflight))
    return made


def submit(pipeline: RequestPipeline[str], *tokens: str, deadline_ms: int = NEVER_MS) -> None:
    for token in tokens:
        pipeline.submit(ASK, token, deadline_ms=deadline_ms)


def sent(pipeline: RequestPipeline[str]) -> list[Request[str]]:
    """The requests that may leave."""
    found = []
    while (request := pipeline.next_frame()) is not None:
        found.append(request)
    return found


def tokens(requests: list[Request[str]]) -> list[str]:
    return [request.token for request in requests]


def response_to(request: Request[str], body: bytes = b"body") -> memoryview:
    return memoryview(
        response_frame(
            api=request.api,
            version=request.version,
            correlation_id=request.correlation_id,
            body=body,
        )
    )


def test_a_request_is_framed_with_its_own_correlation_id() -> None:
    ours = pipeline()
    submit(ours, "a", "b")
    headers = []
    for request in sent(ours):
        frame = b"".join(request.pieces)
        assert len(frame) == request.size
        header = read_request_header(frame)
        assert decode(MetadataRequest, frame[header.body_position :], header.version) == ASK
        headers.append(header)
    assert [header.client_id for header in headers] == ["test", "test"]
    assert [header.correlation_id for header in headers] == [1, 2]


def test_the_records_of_a_produce_are_sent_from_where_they_are() -> None:
    ours = pipeline()
    records = memoryview(bytes(1000))
    request = ProduceRequest(-1, 1000, (ProducePartition("t", 0, records),))
    ours.submit(request, "a", deadline_ms=NEVER_MS)
    (framed,) = sent(ours)
    assert any(isinstance(p, memoryview) and p.obj is records.obj for p in framed.pieces)


def test_responses_find_their_requests_in_order() -> None:
    """W-2.6"""
    ours = pipeline()
    submit(ours, "a", "b")
    first, second = sent(ours)
    for request in (first, second):
        token, response = ours.on_frame(response_to(request))
        assert token == request.token
        assert isinstance(response, memoryview)
        assert bytes(response) == b"body"
    assert ours.pending_count == 0
    assert ours.inflight_bytes == 0


def test_a_response_is_a_view_of_its_frame() -> None:
    ours = pipeline()
    submit(ours, "a")
    (request,) = sent(ours)
    frame = response_to(request)
    _, response = ours.on_frame(frame)
    assert isinstance(response, memoryview)
    assert response.obj is frame.obj


def test_a_response_out_of_order_breaks_the_protocol() -> None:
    """W-2.6"""
    ours = pipeline()
    submit(ours, "a", "b")
    _, second = sent(ours)
    with pytest.raises(ProtocolViolation, match="request 2, and the oldest in flight is 1"):
        ours.on_frame(response_to(second))
    assert ours.fail(ConnectionLost("gone")) == ["a", "b"]


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ((12, b"XX", RESPONSE_BIT | 3, 0, 1, 0), "magic"),
        ((12, MAGIC, 3, 0, 1, 0), "frame is a request, a response is needed"),
        ((12, MAGIC, RESPONSE_BIT | 18, 0, 1, 0), "api 18 in a response to 3"),
        ((12, MAGIC, RESPONSE_BIT | 3, 9, 1, 0), "version 9 in a response to 0"),
        ((12, MAGIC, RESPONSE_BIT | 3, 0, 1, 42), "does not speak the protocol"),
    ],
)
def test_a_broken_response_breaks_the_protocol(
    header: tuple[int, bytes, int, int, int, int], message: str
) -> None:
    """W-2.1, W-2.3, W-2.4"""
    ours = pipeline()
    submit(ours, "a")
    sent(ours)
    with pytest.raises(ProtocolViolation, match=message):
        ours.on_frame(memoryview(HEADER.pack(*header)))


def test_a_response_to_no_request_breaks_the_protocol() -> None:
    ours = pipeline()
    submit(ours, "a")
    (request,) = sent(ours)
    ours.on_frame(response_to(request))
    with pytest.raises(ProtocolViolation, match="request 1, and none is in flight"):
        ours.on_frame(response_to(request))


def test_a_refusal_is_a_typed_error_and_the_pipeline_goes_on() -> None:
    """W-2.4"""
    ours = pipeline()
    submit(ours, "a", "b")
    first, second = sent(ours)
    _, refusal = ours.on_frame(
        memoryview(
            error_frame(
                api=first.api,
                version=first.version,
                correlation_id=first.correlation_id,
                error_code=ErrorCode.UNSUPPORTED_VERSION,
                response=ErrorResponse("speak 1 to 3", 1, 3),
            )
        )
    )
    assert isinstance(refusal, RequestRefused)
    assert (str(refusal), refusal.error_code) == ("speak 1 to 3", ErrorCode.UNSUPPORTED_VERSION)
    assert (refusal.min_version, refusal.max_version) == (1, 3)
    assert ours.on_frame(response_to(second))[0] == "b"


def test_no_more_requests_are_in_flight_than_the_peer_allows() -> None:
    ours = pipeline(inflight=2)
    submit(ours, "a", "b", "c", "d")
    first, second = sent(ours)
    assert sent(ours) == []
    ours.on_frame(response_to(first))
    assert tokens(sent(ours)) == ["c"]
    ours.on_frame(response_to(second))
    assert tokens(sent(ours)) == ["d"]


def test_no_request_is_sent_while_as_many_bytes_are_in_flight_as_may_be() -> None:
    ours = pipeline(inflight_bytes_max=1)
    submit(ours, "a", "b")
    (first,) = sent(ours)
    assert ours.inflight_bytes == first.size
    ours.on_frame(response_to(first))
    assert tokens(sent(ours)) == ["b"]


def test_no_request_is_sent_while_writing_is_paused() -> None:
    ours = pipeline()
    ours.on_writing_paused()
    submit(ours, "a")
    assert sent(ours) == []
    ours.on_writing_resumed()
    assert tokens(sent(ours)) == ["a"]


def test_a_posted_request_is_not_in_flight() -> None:
    ours = pipeline(inflight=1)
    submit(ours, "a")
    for token in ("p", "q"):
        ours.submit(ASK, token, deadline_ms=NEVER_MS, is_posted=True)
    assert tokens(sent(ours)) == ["a"], "a posted request keeps its place in the order"
    ours.fail(ConnectionLost("gone"))
    ours = pipeline(inflight=1)
    ours.submit(ASK, "p", deadline_ms=NEVER_MS, is_posted=True)
    submit(ours, "a")
    assert [(request.token, request.is_posted) for request in sent(ours)] == [
        ("p", True),
        ("a", False),
    ]
    assert ours.pending_count == 1


def test_more_requests_than_may_wait_are_refused_at_once() -> None:
    ours = pipeline()
    ours.on_writing_paused()
    submit(ours, *map(str, range(QUEUED_REQUESTS_MAX)))
    with pytest.raises(TooManyRequests, match="4096 requests wait to be sent to b:1"):
        submit(ours, "one more")
    assert ours.pending_count == QUEUED_REQUESTS_MAX


def test_before_hello_the_pipeline_speaks_nothing_else() -> None:
    """W-6.1"""
    ours: RequestPipeline[str] = RequestPipeline("b:1", client_id="")
    with pytest.raises(VersionUnsupported, match="b:1 does not speak a version of METADATA"):
        submit(ours, "a")
    ours.submit(HelloRequest("a", "1"), "h", deadline_ms=NEVER_MS)
    assert tokens(sent(ours)) == ["h"]


def test_an_api_that_the_peer_does_not_name_is_not_asked() -> None:
    ours: RequestPipeline[str] = RequestPipeline("b:1", client_id="")
    ours.on_hello(hello(apis=False))
    with pytest.raises(VersionUnsupported, match="closer to each other"):
        submit(ours, "a")


def test_a_request_larger_than_the_peer_accepts_is_not_sent() -> None:
    ours = pipeline()
    ours.on_hello(hello(frame_bytes=100))
    request = ProduceRequest(-1, 1000, (ProducePartition("t", 0, memoryview(bytes(100))),))
    with pytest.raises(RequestTooLarge, match=r"a request of \d+ bytes, and b:1 accepts 100"):
        ours.submit(request, "a", deadline_ms=NEVER_MS)
    assert ours.pending_count == 0


@pytest.mark.parametrize(("inflight", "frame_bytes"), [(0, 1000), (-1, 1000), (1, 0), (1, -5)])
def test_limits_that_allow_no_request_break_the_protocol(inflight: int, frame_bytes: int) -> None:
    ours: RequestPipeline[str] = RequestPipeline("b:1", client_id="")
    with pytest.raises(ProtocolViolation, match="limits that allow no request"):
        ours.on_hello(hello(inflight=inflight, frame_bytes=frame_bytes))


def test_a_client_id_too_long_is_the_callers_mistake() -> None:
    """W-2.2"""
    with pytest.raises(ValueError, match="256 bytes"):
        RequestPipeline("b:1", client_id="x" * 256)


def test_a_request_in_flight_that_is_overdue_ends_the_connection() -> None:
    ours = pipeline()
    submit(ours, "a", deadline_ms=500)
    submit(ours, "b", deadline_ms=100)
    sent(ours)
    assert ours.deadline_ms() == 100
    assert ours.on_deadline(99) == []
    with pytest.raises(RequestTimedOut, match="b:1 did not respond to METADATA in time"):
        ours.on_deadline(100)


def test_a_request_that_was_never_sent_fails_alone_at_its_deadline() -> None:
    ours = pipeline(inflight=1)
    submit(ours, "a", deadline_ms=500)
    sent(ours)
    submit(ours, "b", deadline_ms=100)
    submit(ours, "c", deadline_ms=200)
    ((token, error),) = ours.on_deadline(100)
    assert token == "b"
    assert "METADATA was not sent to b:1 in time: 1 requests before it" in str(error)
    assert ours.deadline_ms() == 200
    assert ours.pending_count == 2


def test_the_deadline_of_a_request_that_is_done_is_forgotten_when_it_passes() -> None:
    ours = pipeline()
    submit(ours, "a", deadline_ms=100)
    (request,) = sent(ours)
    ours.on_frame(response_to(request))
    assert ours.deadline_ms() == 100
    assert ours.on_deadline(100) == []
    assert ours.deadline_ms() is None


def test_a_request_that_waits_can_be_withdrawn_and_one_in_flight_cannot() -> None:
    ours = pipeline(inflight=1)
    submit(ours, "a", "b", "c")
    (first,) = sent(ours)
    ours.withdraw("b")
    ours.withdraw("a")
    assert ours.on_frame(response_to(first))[0] == "a"
    assert tokens(sent(ours)) == ["c"]


def test_a_pipeline_that_has_failed_takes_nothing_and_keeps_no_traceback() -> None:
    ours = pipeline(inflight=1)
    submit(ours, "a", "b")
    sent(ours)
    try:
        raise ConnectionLost("the peer died")
    except ConnectionLost as fault:
        assert ours.fail(fault) == ["a", "b"]
    for _ in range(2):
        with pytest.raises(ConnectionLost, match="the peer died"):
            submit(ours, "c")
    assert ours.fault is not None
    assert ours.fault.__traceback__ is None
    assert ours.fail(ProtocolViolation("later")) == []
    assert str(ours.fault) == "the peer died"
    assert (ours.deadline_ms(), ours.next_frame()) == (None, None)


def test_correlation_ids_wrap_around() -> None:
    ours = pipeline()
    ours._correlation_id = (1 << 32) - 2
    submit(ours, "a", "b")
    assert [request.correlation_id for request in sent(ours)] == [(1 << 32) - 1, 0]


def test_a_value_that_its_field_cannot_carry_changes_nothing() -> None:
    ours = pipeline()
    with pytest.raises(ValueError, match="32767"):
        ours.submit(MetadataRequest(("x" * 40_000,)), "a", deadline_ms=NEVER_MS)
    assert (ours.pending_count, ours.deadline_ms()) == (0, None)
