"""Fetch sessions (KIP-227): a client names its partitions once, and later only what has changed.

Owns which partitions each session has, what its client has been told of them, and how many there
may be. Knows neither partitions nor time, which is a parameter. A session belongs to no connection:
a client that connects again goes on with it.

A response of a session leaves out the partitions without records of which nothing is new. A
partition with records goes to the end of its session, so that those behind it have their turn even
where each response is full.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from millrace_protocol.kafka.fetch import (
    FINAL_EPOCH,
    NO_SESSION,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from millrace_server.dialects.kafka.errors import KafkaError

FIRST_EPOCH = 0
EPOCH_MAX = (1 << 31) - 1
SESSIONS_MAX = 1_000
"""Kafka's `max.incremental.fetch.session.cache.slots`."""
PARTITIONS_MAX = 100_000
"""Partitions of all sessions together, some 30 MB of memory."""
UNUSED_MS_MIN = 120_000
"""A session makes room for another one when it was not used for as long, as in Kafka."""
_UNKNOWN = -1

PartitionKey = tuple[str, uuid.UUID, int]


class SessionRefused(Exception):
    """The client is to begin a new session."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(error.name)
        self.error = error


@dataclass(slots=True)
class SessionPartition:
    """A partition that a client reads, and what it has been told of it.

    A topic is named by its name, or by its id with an empty name.
    """

    topic: str
    topic_id: uuid.UUID
    wanted: FetchPartition
    high_watermark: int = _UNKNOWN
    log_start_offset: int = _UNKNOWN

    @property
    def key(self) -> PartitionKey:
        return self.topic, self.topic_id, self.wanted.partition

    def is_of_topic(self, other: SessionPartition) -> bool:
        """Whether both are of one topic."""
        return self.topic == other.topic and self.topic_id == other.topic_id

    def note(self, data: PartitionData) -> bool:
        """Takes note of what a response can say; whether the client does not know it yet."""
        ends = data.high_watermark, data.log_start_offset
        is_new = (
            bool(data.records)
            or data.error_code != 0
            or data.preferred_read_replica != _UNKNOWN
            or ends != (self.high_watermark, self.log_start_offset)
        )
        self.high_watermark, self.log_start_offset = ends
        return is_new


@dataclass(slots=True)
class FetchSession:
    """The partitions of one client."""

    session_id: int
    is_by_id: bool
    used_ms: int
    epoch: int = FIRST_EPOCH + 1
    partitions: dict[PartitionKey, SessionPartition] = field(default_factory=dict)

    def note(self, partition: SessionPartition, data: PartitionData) -> bool:
        """Takes note of what a response can say; whether the client does not know it yet."""
        if data.records and self.partitions.pop(partition.key, None) is not None:
            self.partitions[partition.key] = partition
        return partition.note(data)


class FetchSessions:
    """The sessions of a broker. `make_id()` is a random number of 31 bits."""

    def __init__(
        self,
        make_id: Callable[[], int],
        *,
        sessions_max: int = SESSIONS_MAX,
        partitions_max: int = PARTITIONS_MAX,
    ) -> None:
        self._make_id = make_id
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._sessions: dict[int, FetchSession] = {}
        """By id, the one that was used last at the end."""
        self._partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self, request: FetchRequest, *, is_by_id: bool, now_ms: int
    ) -> tuple[FetchSession | None, list[SessionPartition]]:
        """The session of a request, if it has one, and what is to be read.

        Raises `SessionRefused`.
        """
        if request.session_epoch in (FINAL_EPOCH, FIRST_EPOCH):
            self._remove(request.session_id)
            wanted = _partitions(request.topics)
            if request.session_epoch == FINAL_EPOCH:
                return None, wanted
            return self._new(wanted, is_by_id=is_by_id, now_ms=now_ms), wanted
        session = self._sessions.get(request.session_id)
        if session is None:
            raise SessionRefused(KafkaError.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != session.epoch:
            raise SessionRefused(KafkaError.INVALID_FETCH_SESSION_EPOCH)
        if is_by_id != session.is_by_id:
            raise SessionRefused(KafkaError.FETCH_SESSION_TOPIC_ID_ERROR)
        self._change(session, request)
        if not session.partitions:
            self._remove(session.session_id)
            return None, []
        session.epoch = session.epoch + 1 if session.epoch < EPOCH_MAX else FIRST_EPOCH + 1
        session.used_ms = now_ms
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        return session, [*session.partitions.values()]

    def _new(
        self, wanted: list[SessionPartition], *, is_by_id: bool, now_ms: int
    ) -> FetchSession | None:
        """A session of these partitions; None where there are none, or no room for it."""
        partitions = {partition.key: partition for partition in wanted}
        if not partitions or not self._make_room(len(partitions), now_ms):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._make_id()
        session = FetchSession(session_id, is_by_id, now_ms, partitions=partitions)
        self._sessions[session_id] = session
        self._partition_count += len(partitions)
        return session

    def _make_room(self, partitions: int, now_ms: int) -> bool:
        while (
            len(self._sessions) >= self._sessions_max
            or self._partition_count + partitions > self._partitions_max
        ):
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.used_ms < UNUSED_MS_MIN:
                return False
            self._remove(oldest.session_id)
        return True

    def _change(self, session: FetchSession, request: FetchRequest) -> None:
        """Adds, changes and forgets partitions. Raises `SessionRefused` for too many."""
        before = len(session.partitions)
        for partition in _partitions(request.topics):
            known = session.partitions.setdefault(partition.key, partition)
            known.wanted = partition.wanted
        for topic in request.forgotten_topics_data:
            for number in topic.partitions:
                session.partitions.pop((topic.topic, topic.topic_id, number), None)
        self._partition_count += len(session.partitions) - before
        if self._partition_count > self._partitions_max:
            self._remove(session.session_id)
            raise SessionRefused(KafkaError.FETCH_SESSION_ID_NOT_FOUND)

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partition_count -= len(session.partitions)


def _partitions(topics: Iterable[FetchTopic]) -> list[SessionPartition]:
    return [
        SessionPartition(topic.topic, topic.topic_id, partition)
        for topic in topics
        for partition in topic.partitions
    ]
