"""The request pipeline beside a model that is two lists: what is queued, and what is in flight."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millrace_protocol.errors import ErrorCode
from millrace_protocol.framing import error_frame, response_frame
from millrace_protocol.messages.error_response import ErrorResponse
from millrace_protocol.messages.metadata import MetadataRequest
from millrace_wire.errors import ConnectionLost, ProtocolViolation, RequestRefused, RequestTimedOut
from millrace_wire.request_pipeline import Request, RequestPipeline
from tests.connection.test_request_pipeline import hello


@dataclass
class Asked:
    """A request as the model knows it."""

    token: int
    deadline_ms: int
    is_posted: bool


class PipelineMachine(RuleBasedStateMachine):
    """Submits, sends, responds, waits, withdraws and fails, in any order."""

    @initialize(inflight=st.integers(1, 4), inflight_bytes_max=st.integers(1, 200))
    def connect(self, inflight: int, inflight_bytes_max: int) -> None:
        self.pipeline: RequestPipeline[int] = RequestPipeline(
            "b:1", client_id="m", inflight_bytes_max=inflight_bytes_max
        )
        self.pipeline.on_hello(hello(inflight=inflight))
        self.inflight_max = inflight
        self.inflight_bytes_max = inflight_bytes_max
        self.queued: list[Asked] = []
        self.in_flight: list[tuple[Asked, Request[int]]] = []
        self.is_paused = False
        self.is_failed = False
        self.now_ms = 0
        self.tokens = 0

    @precondition(lambda self: not self.is_failed)
    @rule(
        timeout_ms=st.integers(0, 50),
        is_posted=st.booleans(),
        names=st.lists(st.text(max_size=10), max_size=3),
    )
    def submit(self, timeout_ms: int, is_posted: bool, names: list[str]) -> None:
        self.tokens += 1
        asked = Asked(self.tokens, self.now_ms + timeout_ms, is_posted)
        self.pipeline.submit(
            MetadataRequest(tuple(names)),
            asked.token,
            deadline_ms=asked.deadline_ms,
            is_posted=is_posted,
        )
        self.queued.append(asked)

    def _may_send(self) -> bool:
        size = sum(request.size for _, request in self.in_flight)
        return (
            bool(self.queued)
            and not self.is_paused
            and len(self.in_flight) < self.inflight_max
            and size < self.inflight_bytes_max
        )

    @rule()
    def send(self) -> None:
        expected = self._may_send()
        request = self.pipeline.next_frame()
        assert (request is not None) == expected
        if request is None:
            return
        asked = self.queued.pop(0)
        assert (request.token, request.is_posted) == (asked.token, asked.is_posted)
        if not asked.is_posted:
            self.in_flight.append((asked, request))

    @precondition(lambda self: self.in_flight)
    @rule(body=st.binary(max_size=20), is_refused=st.booleans())
    def respond(self, body: bytes, is_refused: bool) -> None:
        asked, request = self.in_flight.pop(0)
        ids = {"api": int(request.api), "version": 0, "correlation_id": request.correlation_id}
        if is_refused:
            code, refusal = ErrorCode.INVALID_REQUEST, ErrorResponse("no")
            frame = error_frame(**ids, error_code=code, response=refusal)
        else:
            frame = response_frame(**ids, body=body)
        token, response = self.pipeline.on_frame(memoryview(frame))
        assert token == asked.token
        assert isinstance(response, RequestRefused) == is_refused
        if isinstance(response, memoryview):
            assert bytes(response) == body

    @precondition(lambda self: len(self.in_flight) > 1)
    @rule(data=st.data())
    def respond_out_of_order(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(1, len(self.in_flight) - 1))
        _, request = self.in_flight[place]
        frame = response_frame(
            api=request.api, version=0, correlation_id=request.correlation_id, body=b""
        )
        try:
            self.pipeline.on_frame(memoryview(frame))
        except ProtocolViolation as violation:
            self._fail(violation)
        else:
            raise AssertionError("a response out of order was taken")

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        self.is_paused = paused
        if paused:
            self.pipeline.on_writing_paused()
        else:
            self.pipeline.on_writing_resumed()

    @precondition(lambda self: self.queued or self.in_flight)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        pending = [*self.queued, *(asked for asked, _ in self.in_flight)]
        token = data.draw(st.sampled_from(pending)).token
        self.pipeline.withdraw(token)
        self.queued = [asked for asked in self.queued if asked.token != token]

    @rule(passed_ms=st.integers(0, 30))
    def wait(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        deadline_ms = self.pipeline.deadline_ms()
        if deadline_ms is None or deadline_ms > self.now_ms:
            return
        try:
            late = self.pipeline.on_deadline(self.now_ms)
        except RequestTimedOut as fault:
            assert any(asked.deadline_ms <= self.now_ms for asked, _ in self.in_flight)
            self._fail(fault)
            return
        assert all(asked.deadline_ms > self.now_ms for asked, _ in self.in_flight)
        overdue = [asked.token for asked in self.queued if asked.deadline_ms <= self.now_ms]
        assert [token for token, _ in late] == overdue
        self.queued = [asked for asked in self.queued if asked.deadline_ms > self.now_ms]
        left = [asked.deadline_ms for asked in self._pending()]
        assert self.pipeline.deadline_ms() == min(left, default=None)

    @rule()
    def lose(self) -> None:
        self._fail(ConnectionLost("the peer died"))

    def _fail(self, fault: ConnectionLost | ProtocolViolation | RequestTimedOut) -> None:
        assert self.pipeline.fail(fault) == [asked.token for asked in self._pending()]
        self.queued, self.in_flight, self.is_failed = [], [], True

    def _pending(self) -> list[Asked]:
        return [*(asked for asked, _ in self.in_flight), *self.queued]

    @invariant()
    def no_deadline_is_earlier_than_the_pipelines(self) -> None:
        if not hasattr(self, "pipeline"):
            return
        assert self.pipeline.pending_count == len(self._pending())
        assert self.pipeline.inflight_bytes == sum(r.size for _, r in self.in_flight)
        deadline_ms = self.pipeline.deadline_ms()
        for asked in self._pending():
            assert deadline_ms is not None
            assert deadline_ms <= asked.deadline_ms


TestPipeline = PipelineMachine.TestCase
