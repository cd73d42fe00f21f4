"""The sessions of brokers with the active controller: heartbeats, and when a session is over.

Owns what only the active controller knows, and a new one begins anew: when each broker was heard
last, and how far it has applied the metadata. What follows for the metadata is decided here as
well, because an answer to a heartbeat is right only behind its records:

    heartbeat ──► contact ──► heartbeat_records ──► committed ──► heartbeat_answer

Sources: KIP-631; Kafka's BrokerHeartbeatManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millrace_protocol.metadata_records import MetadataRecord
from millrace_server.metadata.broker_registrations import (
    begin_shutdown,
    fence_broker,
    registered_broker,
    unfence_broker,
)
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.leader_election import leads_any

NOTHING_APPLIED = -1


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A broker is alive. `metadata_offset` is the end of what it has applied of the metadata."""

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    wants_shutdown: bool = False


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """`should_shut_down`: the broker has asked for it, and no partition needs it any more."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


@dataclass(slots=True)
class _Session:
    contact_ms: int
    metadata_offset: int = NOTHING_APPLIED
    shutdown_offset: int | None = None
    """The end of the metadata when its leaders had moved away."""


class BrokerSessions:
    """A session lasts `timeout_ms` from the last contact; its end is exclusive.

    Every method that takes a time takes the same clock, which does not go back.
    """

    def __init__(self, *, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._sessions: dict[int, _Session] = {}

    def take_over(self, image: ClusterImage, now_ms: int) -> None:
        """This controller is the active one: every broker in service has a session to come."""
        self._sessions = {
            broker.broker_id: _Session(now_ms)
            for broker in image.brokers.values()
            if not broker.is_fenced
        }

    def begin(self, broker_id: int, now_ms: int) -> None:
        """A broker has registered; what was known of an earlier process is forgotten."""
        self._sessions[broker_id] = _Session(now_ms)

    def contact(self, image: ClusterImage, heartbeat: Heartbeat, now_ms: int) -> None:
        """A broker was heard. Raises `ApiError` if its registration is not in force."""
        broker_id = heartbeat.broker_id
        registered_broker(image, broker_id, heartbeat.broker_epoch)
        session = self._sessions.setdefault(broker_id, _Session(now_ms))
        session.contact_ms = now_ms
        session.metadata_offset = max(session.metadata_offset, heartbeat.metadata_offset)

    def end(self, broker_id: int) -> None:
        """The broker is fenced or has left."""
        self._sessions.pop(broker_id, None)

    def is_alive(self, broker_id: int, now_ms: int) -> bool:
        """Whether a broker was heard within the timeout."""
        session = self._sessions.get(broker_id)
        return session is not None and now_ms < session.contact_ms + self._timeout_ms

    def overdue(self, now_ms: int) -> list[int]:
        """The brokers whose session is over, the longest silent first; `end` forgets them."""
        over = [broker for broker in self._sessions if not self.is_alive(broker, now_ms)]
        return sorted(over, key=lambda broker: (self._sessions[broker].contact_ms, broker))

    def silent(self, *, since_ms: int) -> list[int]:
        """The brokers that were not heard since then."""
        return sorted(b for b, session in self._sessions.items() if session.contact_ms <= since_ms)

    def deadline_ms(self) -> int | None:
        """When the next session is over, None without a session."""
        contacts = (session.contact_ms for session in self._sessions.values())
        first = min(contacts, default=None)
        return None if first is None else first + self._timeout_ms

    def heartbeat_records(
        self, image: ClusterImage, defaults: Mapping[str, str], heartbeat: Heartbeat
    ) -> list[MetadataRecord]:
        """Records that follow from a heartbeat. Raises `ApiError` for a stale registration.

        A broker that wants to stop is fenced when it leads nothing and every other broker has
        applied that.
        """
        broker_id = heartbeat.broker_id
        broker = registered_broker(image, broker_id, heartbeat.broker_epoch)
        if not heartbeat.wants_shutdown:
            is_caught_up = heartbeat.metadata_offset > broker.epoch
            return unfence_broker(image, defaults, broker_id) if is_caught_up else []
        if leads_any(image, broker_id):
            return begin_shutdown(image, defaults, broker_id)
        if broker.in_controlled_shutdown and not self._is_shutdown_known(image, broker_id):
            return []
        return fence_broker(image, defaults, broker_id)

    def heartbeat_answer(self, image: ClusterImage, heartbeat: Heartbeat) -> HeartbeatAnswer:
        """The answer, of the image behind the records. Raises `ApiError` like those."""
        broker = registered_broker(image, heartbeat.broker_id, heartbeat.broker_epoch)
        session = self._sessions.get(heartbeat.broker_id)
        if session is not None and broker.in_controlled_shutdown:
            session.shutdown_offset = session.shutdown_offset or image.end_offset
        return HeartbeatAnswer(
            is_caught_up=heartbeat.metadata_offset > broker.epoch,
            is_fenced=broker.is_fenced,
            should_shut_down=heartbeat.wants_shutdown and broker.is_fenced,
        )

    def _is_shutdown_known(self, image: ClusterImage, broker_id: int) -> bool:
        session = self._sessions.get(broker_id)
        if session is None or session.shutdown_offset is None:
            return False
        offsets = (self._applied(b.broker_id) for b in image.brokers.values() if b.is_active)
        return all(offset >= session.shutdown_offset for offset in offsets)

    def _applied(self, broker_id: int) -> int:
        session = self._sessions.get(broker_id)
        return NOTHING_APPLIED if session is None else session.metadata_offset
