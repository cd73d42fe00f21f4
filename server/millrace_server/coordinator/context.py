"""One shard in one leader epoch: its state, its pending requests and its timer.

Carries out the effects of the shard. Kafka's `CoordinatorContext`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Generic, TypeVar

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.coordinator.loader import CoordinatorLoader, LoadProgress
from millrace_server.coordinator.shard import (
    AnyEffects,
    Append,
    CoordinatorShard,
    Moment,
    RecordSerde,
    Reply,
    Token,
)
from millrace_server.coordinator.writer import PartitionWriter
from millrace_server.environment.seams import Environment
from millrace_server.logs import get_logger
from millrace_server.loop.alarm import Alarm
from millrace_server.loop.completion import Completion
from millrace_server.loop.fair_scheduler import FairScheduler
from millrace_server.partitions.partition import Partition

log = get_logger("millrace.coordinator")

S = TypeVar("S", bound=CoordinatorShard[Any, Any])
Q = TypeVar("Q")


class ContextState(Enum):
    """Loading leads to Active or Closed, Active to Closed; Closed has no way out."""

    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


class CoordinatorContext(Generic[S]):
    """A shard from the start of its load to its end, in one leader epoch.

    Invariants: a shard takes events only while Active; each pending request gets one reply; what a
    load or an append brings after the end is dropped.
    """

    def __init__(
        self,
        name: str,
        epoch: int,
        shard: S,
        serde: RecordSerde[Any],
        env: Environment,
        scheduler: FairScheduler,
        alarm: Alarm[CoordinatorContext[S]],
    ) -> None:
        self._epoch = epoch
        self._progress = LoadProgress()
        self._name = name
        self._shard = shard
        self._serde = serde
        self._env = env
        self._scheduler = scheduler
        self._alarm = alarm
        self._state = ContextState.LOADING
        self._error: ApiError | None = None
        self._writer: PartitionWriter | None = None
        self._pending: dict[Token, Completion[Any]] = {}
        self._effects: deque[Append[Any] | Reply[Any]] = deque()
        self._is_running = False

    @property
    def is_active(self) -> bool:
        return self._state is ContextState.ACTIVE

    async def load(
        self,
        loader: CoordinatorLoader,
        slots: asyncio.Semaphore,
        opened: Callable[[], Awaitable[Partition]],
    ) -> None:
        """Replays the partition, then the shard is Active. A shard that cannot be loaded is closed.

        A load that waits for its partition to open takes no slot.
        """
        try:
            partition = await opened()
            async with slots:
                began_ms = self._env.clock.monotonic_ms()
                await loader.load(partition, self._shard, self._progress)
        except ApiError as error:
            log.error("coordinator not loaded", coordinator=self._name, reason=error.message)
            self.close(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message))
            return
        self._writer = PartitionWriter(
            partition,
            self._epoch,
            self._serde,
            self._env,
            self._scheduler,
            on_ended=self._on_append_ended,
            on_lost=self.close,
        )
        self._state = ContextState.ACTIVE
        self._run(self._shard.on_loaded(self._moment()))
        if self._progress.record_count:
            log.info(
                "coordinator loaded",
                coordinator=self._name,
                epoch=self._epoch,
                records=self._progress.record_count,
                after_ms=self._env.clock.monotonic_ms() - began_ms,
            )

    def write(self, event: Callable[[S, Token, Moment], AnyEffects]) -> Completion[Any]:
        """Runs the event of a request; its result comes with a reply. Raises `ApiError`."""
        shard = self._active()
        token: Completion[Any] = Completion()
        effects = event(shard, token, self._moment())
        self._pending[token] = token
        self._run(effects)
        return token

    def notify(self, event: Callable[[S, Moment], AnyEffects]) -> None:
        """Runs an event that has no reply. Raises `ApiError`, also from the event."""
        self._run(event(self._active(), self._moment()))

    def read(self, query: Callable[[S], Q]) -> Q:
        """Asks the shard without changing it. Raises `ApiError`, also from the query."""
        return query(self._active())

    def on_alarm(self) -> None:
        """The deadline of the shard has come."""
        if self._state is ContextState.ACTIVE:
            self._run(self._shard.on_deadline(self._moment()))

    def close(self, error: ApiError) -> None:
        """Ends the shard. Pending and later requests get `error`."""
        if self._state is ContextState.CLOSED:
            return
        self._state, self._error = ContextState.CLOSED, error
        self._alarm.cancel(self)
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        self._effects.clear()
        self._shard.on_unloaded()
        pending, self._pending = self._pending, {}
        for token in pending.values():
            token.complete(error)

    def _active(self) -> S:
        if self._state is ContextState.ACTIVE:
            return self._shard
        if self._error is not None:
            raise ApiError(self._error.code, self._error.message)
        progress = self._progress
        raise ApiError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            f"The coordinator {self._name} is loading and is at offset {progress.offset} of "
            f"{progress.end_offset}; try again in a moment",
        )

    def _moment(self) -> Moment:
        clock = self._env.clock
        return Moment(clock.monotonic_ms(), clock.wall_ms())

    def _run(self, effects: AnyEffects) -> None:
        """Carries out effects, and those that follow from them, in order."""
        self._effects.extend(effects)
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._effects:
                effect = self._effects.popleft()
                if isinstance(effect, Reply):
                    # A client that has disconnected has cancelled its completion.
                    self._pending.pop(effect.token).complete(effect.result)
                else:
                    assert self._writer is not None
                    self._writer.append(effect)
        finally:
            self._is_running = False
        if self._state is ContextState.ACTIVE:
            self._set_alarm()

    def _set_alarm(self) -> None:
        due_ms = self._shard.deadline_ms()
        if due_ms is None:
            self._alarm.cancel(self)
        else:
            self._alarm.set(self, due_ms)

    def _on_append_ended(self, append_id: int, error: ApiError | None) -> None:
        if error is None:
            self._run(self._shard.on_appended(append_id, self._moment()))
        else:
            self._run(self._shard.on_append_failed(append_id, error, self._moment()))
