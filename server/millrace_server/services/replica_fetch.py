"""The fetches of followers: each connection is a session, whose responses hold slices of the logs.

A request waits, without a task, until its session has something to tell. Events of the led
partitions reach every session; each touches the partitions that wait in it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.environment.seams import Environment, FileSlice
from millrace_server.loop.alarm import Alarm
from millrace_server.loop.completion import Completion
from millrace_server.partitions.core_errors import CORE_ERRORS, as_api_error
from millrace_server.replicas.replica_manager import ReplicaManager
from millrace_server.replication.effects import LeaderEffect
from millrace_server.replication.fetch_session import FetchSession, SessionRefused
from millrace_server.replication.messages import (
    FetchRequest,
    FetchResult,
    PartitionKey,
    Records,
    Refused,
)
from millrace_server.token_bucket import TokenBucket


class Told(NamedTuple):
    """One partition of a response; the receiver releases the slice."""

    key: PartitionKey
    result: FetchResult
    records: FileSlice | None


class FollowerSession:
    """One connection of a follower."""

    def __init__(self, core: FetchSession) -> None:
        self.core = core
        self.waiting: deque[Completion[list[Told]]] = deque()
        """What the handlers of its requests await, the oldest first."""


class ReplicaFetchService:
    """Answers followers. `close` ends what waits."""

    def __init__(
        self, env: Environment, manager: ReplicaManager, *, catch_up_bytes_per_second: int
    ) -> None:
        """Followers outside the ISR share the rate; 0 is no bound."""
        self._env = env
        self._throttle = (
            TokenBucket(catch_up_bytes_per_second, now_ms=env.clock.monotonic_ms())
            if catch_up_bytes_per_second
            else None
        )
        self._manager = manager
        self._sessions: dict[FollowerSession, None] = {}
        self._count = 0
        self._alarm: Alarm[FollowerSession] = Alarm(
            env.clock, asyncio.get_running_loop(), self._settle
        )
        manager.on_appended = self._on_appended
        manager.on_offsets_moved = self._on_offsets_moved
        manager.on_leader_changed = self._on_leader_changed

    def open(self) -> FollowerSession:
        """A new session; its connection ends it with `end`."""
        self._count += 1
        core = FetchSession(self._count, self._manager.leader, self._manager.config, self._throttle)
        session = FollowerSession(core)
        self._sessions[session] = None
        return session

    def end(self, session: FollowerSession) -> None:
        """The connection has ended."""
        self._sessions.pop(session, None)
        self._alarm.cancel(session)

    async def fetch(self, session: FollowerSession, request: FetchRequest) -> list[Told]:
        """The response to a request, when there is something to tell. Raises `ApiError`."""
        if session not in self._sessions:
            raise ApiError(ErrorCode.BROKER_STOPPING)
        waiting: Completion[list[Told]] = Completion()
        try:
            effects = session.core.on_request(request, self._env.clock.monotonic_ms())
        except SessionRefused as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
        session.waiting.append(waiting)
        self._carry_out(effects)
        self._settle(session)
        try:
            return await waiting
        except BaseException:
            # The connection has ended: nobody takes the later responses either.
            self.end(session)
            raise

    def close(self) -> None:
        """Answers every fetch with an error: the broker stops."""
        self._alarm.close()
        sessions, self._sessions = self._sessions, {}
        for session in sessions:
            while session.waiting:
                session.waiting.popleft().fail(ApiError(ErrorCode.BROKER_STOPPING))

    def _on_appended(self, key: PartitionKey) -> None:
        for session in [*self._sessions]:
            session.core.on_appended(key)
            self._settle(session)

    def _on_offsets_moved(self, key: PartitionKey) -> None:
        now_ms = self._env.clock.monotonic_ms()
        for session in [*self._sessions]:
            session.core.on_offsets_moved(key, now_ms)
            self._settle(session)

    def _on_leader_changed(self, key: PartitionKey) -> None:
        for session in [*self._sessions]:
            session.core.on_leader_changed(key)
            self._settle(session)

    def _settle(self, session: FollowerSession) -> None:
        """Answers the requests that are due, and sets the alarm for the next one."""
        core = session.core
        while session.waiting and core.is_due(self._env.clock.monotonic_ms()):
            waiting = session.waiting.popleft()
            told = self._response(core)
            effects = core.end_response(self._env.clock.monotonic_ms())
            if not waiting.complete(told):
                release(told)
            self._carry_out(effects)
        due_ms = core.deadline_ms()
        if session.waiting and due_ms is not None:
            self._alarm.set(session, due_ms)

    def _response(self, core: FetchSession) -> list[Told]:
        request = core.request
        assert request is not None
        left = min(request.max_bytes, self._manager.config.fetch_bytes_max)
        told: list[Told] = []
        is_first = True
        while True:
            now_ms = self._env.clock.monotonic_ms()
            found = core.next_result(now_ms)
            if found is None:
                return told
            key, result = found
            records: FileSlice | None = None
            if isinstance(result.outcome, Records):
                if left <= 0:
                    core.put_back(key)
                    return told
                records, result = self._read(key, result, left)
                size = 0 if records is None else records.size
                if size > left and not is_first:
                    assert records is not None
                    records.release()
                    core.put_back(key)
                    return told
                if size:
                    is_first = False
                    left -= size
                    core.on_sent(key, size, now_ms)
            told.append(Told(key, result, records))

    def _read(
        self, key: PartitionKey, result: FetchResult, max_bytes: int
    ) -> tuple[FileSlice | None, FetchResult]:
        led = self._manager.led[key]
        assert isinstance(result.outcome, Records)
        log = led.partition.log
        try:
            found = log.reader.read(
                result.outcome.offset, max_bytes=max_bytes, end_offset=log.end_offset
            )
        except CORE_ERRORS as error:
            return None, FetchResult(Refused(as_api_error(error).code))
        return found.slice, result

    def _carry_out(self, effects: Iterable[tuple[PartitionKey, LeaderEffect]]) -> None:
        for key, effect in effects:
            led = self._manager.led.get(key)
            if led is not None:
                led.carry_out([effect])


def release(told: Iterable[Told]) -> None:
    """Releases the slices of a response that will not be sent."""
    for each in told:
        if each.records is not None:
            each.records.release()
