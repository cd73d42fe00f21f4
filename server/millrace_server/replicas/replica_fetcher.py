"""Fetches what this broker follows from one leader's broker: the shell around `FetchSchedule`.

One task sends the requests that the schedule has, at most two at a time, takes the responses in
their order, and carries out their effects, each to its end. Appends wait for no disk: their flush
reports back with `on_stored`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import cast

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.replica_fetch import (
    ReplicaFetchRequest,
    ReplicaFetchResponse,
)
from millrace_server.api_error import ApiError
from millrace_server.environment.seams import Environment, ReadBuffer
from millrace_server.log import UnexpectedBatch
from millrace_server.logs import FAILURE_LINE_MS, LogRateLimiter, get_logger
from millrace_server.partitions.core_errors import CORE_ERRORS
from millrace_server.partitions.following import append_fetched, begin_anew, truncate_to
from millrace_server.partitions.partition import Partition
from millrace_server.peers.calls import Channel, PeerCalls, PeerUnreachable, refusal
from millrace_server.replicas.wire_messages import decoded_results, encoded_request
from millrace_server.replication.config import ReplicationConfig
from millrace_server.replication.effects import (
    AdvanceHighWatermark,
    AdvanceStart,
    Append,
    FollowerEffect,
    ReportLoss,
    Reset,
    Truncate,
)
from millrace_server.replication.fetch_schedule import FetchSchedule
from millrace_server.replication.follower import PartitionFollower
from millrace_server.replication.messages import BrokerKey, PartitionKey

log = get_logger("millrace.replication")
CALL_TIMEOUT_MS = 10_000
"""More than a leader holds a fetch back; a leader that is silent for longer is not followed."""
RECONNECT_MS = 200
_REFUSALS: tuple[type[Exception], ...] = (*CORE_ERRORS, UnexpectedBatch, ValueError)
"""Of the log and of the disk: the partition is tried again later."""
Call = asyncio.Task[ReplicaFetchResponse]
ReportOffline = Callable[[Partition, ApiError], None]


class ReplicaFetcher:
    """Follows the broker `leader_id` from `start` to `stop`."""

    def __init__(
        self,
        env: Environment,
        peers: PeerCalls,
        leader_id: int,
        broker: BrokerKey,
        config: ReplicationConfig,
        *,
        save_high_watermarks: Callable[[], Awaitable[None]],
        on_lost: ReportOffline,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`save_high_watermarks()` makes those of all partitions durable, or raises `OSError`.
        `on_lost` takes a partition offline whose leader has lost committed records."""
        self._env = env
        self._peers = peers
        self._leader_id = leader_id
        self._schedule = FetchSchedule(broker, config)
        self._save_high_watermarks = save_high_watermarks
        self._on_lost = on_lost
        self._on_failure = on_failure
        self._partitions: dict[PartitionKey, Partition] = {}
        self._calls: deque[Call] = deque()
        self._wake = asyncio.Event()
        self._busy: PartitionKey | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._lines = LogRateLimiter(env.clock, lines=1, period_ms=FAILURE_LINE_MS)
        self._is_reached = True
        self._task = env.spawn.task(self._run(), name=f"fetch from broker {leader_id}")

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def broker(self) -> BrokerKey:
        """The registration under which this broker fetches."""
        return self._schedule.broker

    def add(self, key: PartitionKey, partition: Partition, follower: PartitionFollower) -> None:
        """Follows the leader of a partition."""
        self._partitions[key] = partition
        self._schedule.add(key, follower)
        self._wake.set()

    async def remove(self, key: PartitionKey) -> None:
        """Follows it no longer; returns when nothing is done to its log any more."""
        if key in self._partitions:
            del self._partitions[key]
            self._schedule.remove(key)
            self._wake.set()
        while self._busy == key:
            self._idle.clear()
            await self._idle.wait()

    def on_stored(self, key: PartitionKey) -> None:
        """More of the log of a partition is stored as its topic demands."""
        follower = self._schedule.followers.get(key)
        if follower is None:
            return
        partition = self._partitions[key]
        for effect in follower.on_acked():
            self._move(partition, effect)
        self.on_moved(key)

    def on_moved(self, key: PartitionKey) -> None:
        """A partition's position may be another one."""
        self._schedule.on_changed(key)
        self._wake.set()

    async def stop(self) -> None:
        """Fetches no more."""
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._drop_calls()

    async def _run(self) -> None:
        try:
            while True:
                self._wake.clear()
                self._send()
                # A response that came during the last effects has set `_wake` before the clear.
                if not self._has_response():
                    await self._wait()
                if self._has_response():
                    await self._take(self._calls.popleft())
        except Exception as error:
            self._on_failure(error)

    def _has_response(self) -> bool:
        return bool(self._calls) and self._calls[0].done()

    def _send(self) -> None:
        while True:
            request = self._schedule.next_request(self._env.clock.monotonic_ms())
            if request is None:
                return
            call = self._env.spawn.task(self._call(encoded_request(request)), name="replica fetch")
            call.add_done_callback(lambda _: self._wake.set())
            self._calls.append(call)

    async def _call(self, request: ReplicaFetchRequest) -> ReplicaFetchResponse:
        return await self._peers.call(
            self._leader_id,
            Channel.REPLICA_FETCH,
            request,
            ReplicaFetchResponse,
            timeout_ms=CALL_TIMEOUT_MS,
        )

    async def _wait(self) -> None:
        if self._wake.is_set():
            return
        due_ms = self._schedule.deadline_ms()
        if due_ms is None:
            await self._wake.wait()
            return
        wait_ms = max(0, due_ms - self._env.clock.monotonic_ms())
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _take(self, call: Call) -> None:
        """Takes the response to the oldest request."""
        try:
            response = call.result()
            if response.error_code != ErrorCode.NONE:
                raise refusal(response.error_code, response.error_message)
        except (PeerUnreachable, ApiError) as error:
            if self._is_reached:
                self._is_reached = False
                log.warning("leader not reached", broker=self._leader_id, reason=str(error))
            await self._drop_calls()
            self._schedule.on_disconnected()
            await asyncio.sleep(RECONNECT_MS / 1000)
            return
        self._is_reached = True
        results = decoded_results(response)
        effects = self._schedule.on_response(results, self._env.clock.monotonic_ms())
        # Those that wait come last. A flush of another partition may end meanwhile, and its
        # follower takes what it has decided before for done.
        effects.sort(key=lambda each: isinstance(each[1], Truncate | Reset))
        followers = {key: self._schedule.followers[key] for key, _ in effects}
        for key, effect in effects:
            # What is awaited for one partition gives time to remove another, or to add it anew.
            if self._schedule.followers.get(key) is followers[key]:
                await self._carry_out(key, followers[key], effect)

    async def _drop_calls(self) -> None:
        while self._calls:
            call = self._calls.popleft()
            call.cancel()
            await asyncio.wait([call])
            if not call.cancelled():
                call.exception()

    async def _carry_out(
        self, key: PartitionKey, follower: PartitionFollower, effect: FollowerEffect
    ) -> None:
        partition = self._partitions[key]
        self._busy = key
        try:
            await self._try(key, partition, follower, effect)
        except _REFUSALS as error:
            if (suppressed := self._lines.take()) is not None:
                log.error(
                    "replica not brought up to its leader",
                    topic=partition.topic,
                    partition=partition.number,
                    reason=str(error),
                    suppressed=suppressed,
                )
            self._schedule.on_failed(key, self._env.clock.monotonic_ms())
        finally:
            self._busy = None
            self._idle.set()
        self._schedule.on_changed(key)

    async def _try(
        self,
        key: PartitionKey,
        partition: Partition,
        follower: PartitionFollower,
        effect: FollowerEffect,
    ) -> None:
        match effect:
            case Append():
                data = cast("ReadBuffer", effect.records.data)
                append_fetched(partition, data, now_ms=self._env.clock.wall_ms())
                if partition.config.durability == "os":
                    self.on_stored(key)
            case Truncate():
                await self._lower_high_watermark(partition, effect.high_watermark)
                now_ms = self._env.clock.wall_ms()
                await truncate_to(partition, effect.end_offset, now_ms=now_ms)
                follower.on_truncated()
            case Reset():
                await self._lower_high_watermark(partition, effect.high_watermark)
                await begin_anew(partition, effect.start_offset)
                follower.on_reset()
            case ReportLoss():
                log.critical(
                    "the leader has lost records that were committed",
                    topic=partition.topic,
                    partition=partition.number,
                    reason=effect.message,
                )
                self._on_lost(partition, ApiError(ErrorCode.KAFKA_STORAGE_ERROR, effect.message))
            case _:
                self._move(partition, effect)

    async def _lower_high_watermark(self, partition: Partition, offset: int) -> None:
        """Gives up what was committed behind `offset`, durably before any record goes: a restart
        must not find a high watermark above the records of the new leader. Raises `OSError`."""
        if offset < partition.high_watermark:
            partition.lower_high_watermark(offset)
            await self._save_high_watermarks()

    @staticmethod
    def _move(partition: Partition, effect: FollowerEffect) -> None:
        match effect:
            case AdvanceHighWatermark():
                partition.advance_high_watermark(effect.offset)
            case AdvanceStart():
                partition.advance_start(effect.offset)
