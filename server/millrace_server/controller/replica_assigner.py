"""The replica assigner: tells the controller in which directory a replica was created (KIP-858).

A replica takes appends once that is committed. Replicas that are created while a report is on its
way go together in the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from millrace_server.api_error import ApiError
from millrace_server.controller.applier import MetadataApplier, NotApplied, Replica
from millrace_server.environment.seams import Environment
from millrace_server.logs import get_logger

log = get_logger("millrace.controller")
Report = Callable[[Sequence[Replica]], Awaitable[None]]
"""Commits that this broker has created replicas. Raises `ApiError`."""


class ReplicaAssigner:
    """Reports replicas until `close`."""

    def __init__(self, env: Environment, report: Report, applier: MetadataApplier) -> None:
        self._env = env
        self._report = report
        self._applier = applier
        self._tasks: set[asyncio.Task[None]] = set()

    def assign(self, created: Sequence[Replica]) -> asyncio.Future[None]:
        """Reports replicas that the applier has created.

        The result is done when they are in service. It fails with `NotApplied` when the report is
        refused: the applier tries again to create them.
        """
        task = self._env.spawn.task(self._assign(created), name="assign replicas")
        self._tasks.add(task)
        task.add_done_callback(self._end)
        return task

    async def close(self) -> None:
        """Returns when no report is on its way."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    async def _assign(self, created: Sequence[Replica]) -> None:
        try:
            await self._report(created)
        except ApiError as error:
            log.error("replicas not reported", replicas=len(created), reason=error.message)
            self._applier.give_up(created, error)
            raise NotApplied(error.code, error.message) from error
