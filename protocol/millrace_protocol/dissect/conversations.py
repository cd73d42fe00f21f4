"""TCP segments to frames: each direction put in order, and cut where frames end.

Owns the reassembly: retransmissions are dropped, segments out of order wait, and a hole that
nothing fills is reported and skipped up to the next frame. Frames leave in the order in which their
last byte was captured, so that requests and responses read as a conversation. A direction with a
request of Kafka's protocol in it is that of the client.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from millrace_protocol.dissect.captures import Segment
from millrace_protocol.dissect.frames import dissect_frame, find_frame, frame_size
from millrace_protocol.dissect.kafka_frames import KafkaConversation, is_kafka_request
from millrace_protocol.dissect.span import DEFAULT_LIMITS, Limits, Span

_WAITING_BYTES_MAX = 4 << 20
"""Bytes that may wait behind a hole before it counts as lost."""
_DIRECTIONS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Sighting:
    """A frame, or a note about the stream, and where in the capture it was complete."""

    time_ns: int
    source: str
    destination: str
    span: Span

    def titled(self) -> Span:
        """The span with a name that also has sender, receiver and time."""
        seconds, nanoseconds = divmod(self.time_ns, 1_000_000_000)
        when = f"{seconds}.{nanoseconds // 1000:06} " if self.time_ns >= 0 else ""
        name = f"{when}{self.source} > {self.destination} {self.span.name}"
        return replace(self.span, name=name)


@dataclass(slots=True)
class _Direction:
    """One way of one connection: `first` its first sequence number, `expected` the next one."""

    source: str
    destination: str
    first: int
    expected: int
    in_step: bool
    pending: bytearray = field(default_factory=bytearray)
    waiting: dict[int, bytes] = field(default_factory=dict)
    waiting_bytes: int = 0
    asked: KafkaConversation | None = None
    """What is remembered of its requests, if they are of Kafka's protocol."""
    answers: KafkaConversation | None = None
    """The requests of the other direction, if they are of Kafka's protocol."""


def dissect_segments(
    segments: Iterable[Segment], *, port: int | None = None, limits: Limits = DEFAULT_LIMITS
) -> Iterator[Sighting]:
    """The frames and text lines in a capture's segments. Positions count from each frame.

    `port` is the broker's; None takes every connection for one of ours.
    """
    directions: dict[tuple[str, str], _Direction] = {}
    time_ns = -1
    for segment in segments:
        key = (segment.source, segment.destination)
        if port is not None and not any(end.endswith(f":{port}") for end in key):
            continue
        time_ns = segment.time_ns
        direction = directions.get(key)
        reopened = segment.is_syn and direction and _first(segment) != direction.first
        if direction is not None and reopened:
            yield from _finish(direction, time_ns, limits)
            direction = None
        if direction is None:
            if not segment.payload and not segment.is_syn:
                continue
            if len(directions) >= _DIRECTIONS_MAX:
                del directions[next(iter(directions))]
            other = directions.get((segment.destination, segment.source))
            direction = directions[key] = _open(segment, None if other is None else other.asked)
        elif direction.answers is None:
            other = directions.get((segment.destination, segment.source))
            direction.answers = None if other is None else other.asked
        yield from _feed(direction, segment, limits)
    for direction in directions.values():
        yield from _finish(direction, time_ns, limits)


def _open(segment: Segment, answers: KafkaConversation | None) -> _Direction:
    """A direction first seen at `segment`; without its SYN the stream may begin inside a frame."""
    first, payload = _first(segment), segment.payload
    if answers is not None:
        in_step = segment.is_syn or answers.response_size(payload) != 0
    else:
        in_step = segment.is_syn or (
            frame_size(payload) != 0 and find_frame(payload, 0) in (None, 0)
        )
    made = _Direction(segment.source, segment.destination, first, first, in_step)
    made.answers = answers
    return made


def _first(segment: Segment) -> int:
    """Sequence number of the payload's first byte: a SYN takes one for itself."""
    return (segment.sequence + segment.is_syn) & 0xFFFFFFFF


def _feed(direction: _Direction, segment: Segment, limits: Limits) -> Iterator[Sighting]:
    if segment.payload:
        _store(direction, _first(segment), segment.payload)
    while True:
        while _take_next(direction):
            yield from _frames(direction, segment.time_ns, limits)
        if direction.waiting_bytes <= _WAITING_BYTES_MAX:
            return
        yield from _skip_hole(direction, segment.time_ns, limits)


def _store(direction: _Direction, sequence: int, payload: bytes) -> None:
    known = direction.waiting.get(sequence)
    if known is None or len(known) < len(payload):
        direction.waiting[sequence] = payload
        direction.waiting_bytes += len(payload) - len(known or b"")


def _take_next(direction: _Direction) -> bool:
    """Moves what continues the stream to `pending`; drops what came before."""
    while direction.waiting:
        sequence = direction.expected
        if sequence not in direction.waiting:
            sequence = _nearest(direction)
        distance = _distance(direction.expected, sequence)
        if distance > 0:
            return False
        payload = direction.waiting.pop(sequence)
        direction.waiting_bytes -= len(payload)
        fresh = payload[-distance:]
        if fresh:
            direction.pending += fresh
            direction.expected = (direction.expected + len(fresh)) & 0xFFFFFFFF
            return True
    return False


def _nearest(direction: _Direction) -> int:
    return min(direction.waiting, key=lambda s: _distance(direction.expected, s))


def _distance(expected: int, sequence: int) -> int:
    """How far `sequence` lies ahead of what is expected, in a space that wraps."""
    return ((sequence - expected + 0x80000000) & 0xFFFFFFFF) - 0x80000000


def _frames(direction: _Direction, time_ns: int, limits: Limits) -> Iterator[Sighting]:
    """Cuts whole frames off `pending`."""
    answers = direction.answers
    if not direction.in_step:
        pending = direction.pending
        start = find_frame(pending, 0) if answers is None else answers.find_response(pending)
        if start is None:
            del direction.pending[: max(len(direction.pending) - 5, 0)]
            return
        del direction.pending[:start]
        direction.in_step = True
    pending = direction.pending
    while pending:
        size = frame_size(pending) if answers is None else answers.response_size(pending)
        if size is None:
            return
        frame = bytes(pending[:size] if size else pending)
        del pending[: len(frame)]
        direction.in_step = size > 0
        if answers is None and is_kafka_request(frame):
            direction.asked = direction.asked or KafkaConversation()
            direction.asked.note(frame)
        yield _sighting(direction, time_ns, _dissected(direction, frame, limits))


def _dissected(direction: _Direction, frame: bytes, limits: Limits) -> Span:
    if direction.answers is not None:
        return direction.answers.dissect_response(frame, limits=limits)
    return dissect_frame(frame, 0, len(frame), limits=limits)


def _skip_hole(direction: _Direction, time_ns: int, limits: Limits) -> Iterator[Sighting]:
    """Gives up the bytes that never came; a frame begun before them is shown as it is."""
    sequence = _nearest(direction)
    lost = _distance(direction.expected, sequence)
    yield from _give_up(direction, time_ns, limits)
    direction.expected = sequence
    direction.in_step = False
    span = Span(0, 0, "hole", "bytes", fault=f"{lost} bytes are not in the capture")
    yield _sighting(direction, time_ns, span)


def _give_up(direction: _Direction, time_ns: int, limits: Limits) -> Iterator[Sighting]:
    begun = bytes(direction.pending)
    direction.pending.clear()
    if begun and direction.in_step:
        yield _sighting(direction, time_ns, _dissected(direction, begun, limits))


def _finish(direction: _Direction, time_ns: int, limits: Limits) -> Iterator[Sighting]:
    """What is left when the capture ends: holes are skipped, a begun frame is shown as it is."""
    while direction.waiting:
        if not _take_next(direction) and direction.waiting:
            yield from _skip_hole(direction, time_ns, limits)
        yield from _frames(direction, time_ns, limits)
    yield from _give_up(direction, time_ns, limits)


def _sighting(direction: _Direction, time_ns: int, span: Span) -> Sighting:
    return Sighting(time_ns, direction.source, direction.destination, span)
