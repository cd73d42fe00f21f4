"""The shards of one coordinator on this broker, by partition of its topic.

Owns which leader epoch of a partition is served: a load or unload counts only if its epoch is newer
than every one before it, so an event of an old leadership changes nothing. Owns the bound on loads
that run at once. Kafka's `CoordinatorRuntime` (KIP-848).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.coordinator.context import CoordinatorContext, S
from millrace_server.coordinator.loader import CoordinatorLoader
from millrace_server.coordinator.shard import AnyEffects, Moment, RecordSerde, Token
from millrace_server.environment.seams import Environment
from millrace_server.loop.alarm import Alarm
from millrace_server.loop.completion import Completion
from millrace_server.loop.fair_scheduler import FairScheduler
from millrace_server.partitions.partition import Partition

Q = TypeVar("Q")
LOADS_MAX = 4
"""Partitions that are replayed at once: each holds a worker thread while it reads, and a few
megabytes of decoded records."""


class CoordinatorRuntime(Generic[S]):
    """Shards of one kind. `new_shard` makes one for each load."""

    def __init__(
        self,
        topic: str,
        *,
        new_shard: Callable[[], S],
        serde: RecordSerde[Any],
        env: Environment,
        scheduler: FairScheduler,
    ) -> None:
        self._topic = topic
        self._new_shard = new_shard
        self._serde = serde
        self._env = env
        self._scheduler = scheduler
        self._loader = CoordinatorLoader(serde, env, scheduler)
        self._alarm: Alarm[CoordinatorContext[S]] = Alarm(
            env.clock, asyncio.get_running_loop(), lambda context: context.on_alarm()
        )
        self._contexts: dict[int, CoordinatorContext[S]] = {}
        self._epochs: dict[int, int] = {}
        self._loads: dict[CoordinatorContext[S], asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(LOADS_MAX)
        self._is_closed = False

    def load(
        self, number: int, epoch: int, opened: Callable[[], Awaitable[Partition]]
    ) -> asyncio.Task[None] | None:
        """Loads the shard of a partition that this broker leads from `epoch` on.

        Replaces the shard of an older epoch. Returns the load, which raises nothing, or None if the
        epoch is not newer than those before it. `opened` returns the partition once it is open, or
        raises `ApiError`.
        """
        if self._is_closed or not self._is_newer(number, epoch):
            return None
        self._end(number, ApiError(ErrorCode.NOT_COORDINATOR))
        context = self._contexts[number] = CoordinatorContext(
            f"{self._topic}-{number}",
            epoch,
            self._new_shard(),
            self._serde,
            self._env,
            self._scheduler,
            self._alarm,
        )
        load = self._env.spawn.task(
            context.load(self._loader, self._slots, opened), name=f"load {self._topic}-{number}"
        )
        self._loads[context] = load
        load.add_done_callback(lambda _: self._loads.pop(context))
        return load

    def unload(self, number: int, epoch: int) -> bool:
        """Ends the shard of a partition that another broker leads from `epoch` on.

        Pending requests get NOT_COORDINATOR. Returns False, and changes nothing, if the epoch is
        not newer than those before it.
        """
        if not self._is_newer(number, epoch):
            return False
        self._end(number, ApiError(ErrorCode.NOT_COORDINATOR))
        return True

    def unload_all(self) -> None:
        """Ends all shards, because the topic is deleted; pending requests get NOT_COORDINATOR.

        The epochs of another topic of that name begin anew.
        """
        for number in list(self._contexts):
            self._end(number, ApiError(ErrorCode.NOT_COORDINATOR))
        self._epochs.clear()

    def close(self) -> None:
        """Ends all shards, because the broker stops: requests get COORDINATOR_NOT_AVAILABLE."""
        self._is_closed = True
        for number in list(self._contexts):
            self._end(number, ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        self._alarm.close()

    def check_running(self) -> None:
        """Raises `ApiError` once the runtime is closed."""
        if self._is_closed:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def wait_closed(self) -> None:
        """Returns when no load runs any more; call after `close`."""
        if self._loads:
            await asyncio.wait(self._loads.values())

    def write(
        self, number: int, event: Callable[[S, Token, Moment], AnyEffects]
    ) -> Completion[Any]:
        """Runs the event of a request on a shard; completes with its result, or an `ApiError`.

        Raises `ApiError` when the shard is not active here.
        """
        return self._context(number).write(event)

    def read(self, number: int, query: Callable[[S], Q]) -> Q:
        """Asks a shard without changing it. Raises `ApiError`, also from the query."""
        return self._context(number).read(query)

    def read_all(self, query: Callable[[S], Q]) -> list[Q]:
        """Asks every shard. Raises `ApiError` unless all are active."""
        self.check_running()
        return [context.read(query) for context in self._contexts.values()]

    def read_active(self, query: Callable[[S], Q]) -> list[Q]:
        """Asks every shard that is active."""
        return [each.read(query) for each in self._contexts.values() if each.is_active]

    def notify(self, number: int, event: Callable[[S, Moment], AnyEffects]) -> None:
        """Runs an event without a reply on a shard. Raises `ApiError`, also from the event."""
        self._context(number).notify(event)

    def notify_all(self, event: Callable[[S, Moment], AnyEffects]) -> None:
        """Runs an event without a reply on every active shard."""
        for context in list(self._contexts.values()):
            if context.is_active:
                context.notify(event)

    def _is_newer(self, number: int, epoch: int) -> bool:
        if epoch <= self._epochs.get(number, -1):
            return False
        self._epochs[number] = epoch
        return True

    def _end(self, number: int, error: ApiError) -> None:
        context = self._contexts.pop(number, None)
        if context is None:
            return
        if context in self._loads:
            self._loads[context].cancel()
        context.close(error)

    def _context(self, number: int) -> CoordinatorContext[S]:
        context = self._contexts.get(number)
        if context is None:
            self.check_running()
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return context
