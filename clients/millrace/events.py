"""Health and events of a client.

Owns the values and the fan-out to those who listen. A listener that does not keep up loses the
oldest events, never memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from millrace.errors import MillraceError
from millrace.records import TopicPartition

EVENTS_KEPT = 1_000
"""Events that wait for one listener; beyond that the oldest go."""

log = logging.getLogger("millrace")


class State(StrEnum):
    """Where a client is in its life. `FAILED` is for good and has a cause."""

    NEW = "new"
    RUNNING = "running"
    CLOSING = "closing"
    CLOSED = "closed"
    FAILED = "failed"


class EventKind(StrEnum):
    """What happened."""

    CONNECTED = "connected"
    CONNECTION_LOST = "connection_lost"
    DELIVERY_FAILED = "delivery_failed"
    RETRYING = "retrying"
    PRODUCER_EPOCH = "producer_epoch"
    FETCH_FAILED = "fetch_failed"
    OFFSET_RESET = "offset_reset"
    PARTITIONS_CHANGED = "partitions_changed"
    REBALANCING = "rebalancing"
    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"
    COMMIT_FAILED = "commit_failed"
    COORDINATOR_LOST = "coordinator_lost"
    CALLBACK_FAILED = "callback_failed"
    PROCESSING_SLOW = "processing_slow"
    PROCESSING_OVERDUE = "processing_overdue"
    LOOP_STALLED = "loop_stalled"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Event:
    """One event, in a sentence for a person; `error` where there is one."""

    kind: EventKind
    sentence: str
    error: MillraceError | None = None


@dataclass(frozen=True, slots=True)
class ProducerHealth:
    """A producer at a moment. `oldest_ms` is the age of the oldest record that is not acked."""

    state: State
    last_error: MillraceError | None
    buffered_bytes: int
    buffered_records: int
    in_flight_requests: int
    oldest_ms: int
    failed_records: int


@dataclass(frozen=True, slots=True)
class GroupHealth:
    """A consumer's membership of its group at a moment.

    `last_heartbeat_ms` is how long ago the group last answered; `processing_ms` how long the
    application processes its records, None while it waits; `processing_left_ms` the time left.
    `callback_error` is what a rebalance callback raised, until one returns.
    """

    group: str
    member_id: str
    generation: int
    state: str
    last_heartbeat_ms: int | None
    processing_ms: int | None
    processing_left_ms: int | None
    assignment: tuple[TopicPartition, ...]
    callback_error: MillraceError | None = None


@dataclass(frozen=True, slots=True)
class ConsumerHealth:
    """A consumer at a moment. `last_fetch_ms` is how long ago a broker last answered a fetch.

    `last_error` is the last one of a fetch, or else of a rebalance callback.
    `waiting` has the partitions that are not read, and why; they are tried again in the background.
    """

    state: State
    last_error: MillraceError | None
    assigned: int
    buffered_bytes: int
    in_flight_requests: int
    last_fetch_ms: int | None
    group: GroupHealth | None = None
    waiting: Mapping[TopicPartition, MillraceError] = field(default_factory=dict)


class EventFeed:
    """Hands each event to every listener, in order, and to the log, at INFO as a rule."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._listeners: set[_Listener] = set()

    def emit(
        self,
        kind: EventKind,
        sentence: str,
        error: MillraceError | None = None,
        *,
        raised: Exception | None = None,
    ) -> None:
        """Hands the event to every listener, now.

        `raised` is an exception of the application: the log has it at ERROR, with its traceback.
        """
        log.log(
            logging.INFO if raised is None else logging.ERROR,
            "%s: %s",
            self._owner,
            sentence,
            exc_info=raised,
        )
        event = Event(kind, sentence, error)
        for listener in tuple(self._listeners):
            listener.put(event)

    def end(self) -> None:
        """Ends every iteration once it has seen what was emitted before."""
        for listener in tuple(self._listeners):
            listener.end()
        self._listeners.clear()

    def listen(self) -> AsyncIterator[Event]:
        """The events from now on."""
        listener = _Listener()
        self._listeners.add(listener)
        return self._events(listener)

    async def _events(self, listener: _Listener) -> AsyncIterator[Event]:
        try:
            while True:
                while listener.events:
                    yield listener.events.popleft()
                if listener.ended:
                    return
                await listener.changed.wait()
                listener.changed.clear()
        finally:
            self._listeners.discard(listener)


class _Listener:
    __slots__ = ("changed", "ended", "events")

    def __init__(self) -> None:
        self.events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self.changed = asyncio.Event()
        self.ended = False

    def put(self, event: Event) -> None:
        self.events.append(event)
        self.changed.set()

    def end(self) -> None:
        self.ended = True
        self.changed.set()
