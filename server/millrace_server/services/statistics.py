"""Statistics: what the registry of this broker holds, read when a client asks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from importlib.metadata import version

from millrace_protocol.acls import Operation
from millrace_server.environment.seams import DiskSpace, Environment
from millrace_server.loop.fair_scheduler import FairScheduler
from millrace_server.services.request_context import RequestContext
from millrace_server.statistics import Sample, metrics
from millrace_server.statistics.registry import MetricSamples, Registry

DISK_WAIT_S = 1.0
"""How long a reader waits for the size of the disk. One that hangs must not hide what tells so."""
_MEASURED = (metrics.DISK_SIZE, metrics.DISK_FREE)


class StatisticsService:
    """Reads the registry in chunks. The broker starts when it is constructed."""

    software_version = version("millrace")

    def __init__(self, registry: Registry, env: Environment, scheduler: FairScheduler) -> None:
        self.registry = registry
        self._env = env
        self._scheduler = scheduler
        self._started_ms = env.clock.monotonic_ms()
        self._space = DiskSpace(-1, -1)
        self._measuring: asyncio.Future[DiskSpace] | None = None
        registry.gauge(metrics.BUILD_INFO, lambda: 1, self.software_version)
        registry.collect(metrics.DISK_SIZE, lambda: _known(self._space.total_bytes))
        registry.collect(metrics.DISK_FREE, lambda: _known(self._space.usable_bytes))

    @property
    def uptime_ms(self) -> int:
        """How long the broker has been running."""
        return self._env.clock.monotonic_ms() - self._started_ms

    async def read(self, context: RequestContext, prefix: str) -> list[MetricSamples]:
        """The metrics whose names begin with `prefix`, with all samples. Raises `ApiError`."""
        context.check_cluster(Operation.DESCRIBE)
        if any(metric.name.startswith(prefix) for metric in _MEASURED):
            await self._measure_disk()
        found: list[MetricSamples] = []
        for each in self.registry.read(prefix):
            if each is None:
                await self._scheduler.yield_()
            else:
                found.append(each)
        return found

    async def _measure_disk(self) -> None:
        """Takes the size of the disk; the one before stays while the disk does not answer."""
        if self._measuring is None:
            self._measuring = self._env.spawn.blocking(self._env.disk.space)
        measuring = self._measuring
        await asyncio.wait((measuring,), timeout=DISK_WAIT_S)
        if measuring.done() and self._measuring is measuring:
            self._measuring = None
            if not measuring.cancelled() and measuring.exception() is None:
                self._space = measuring.result()


def _known(value: int) -> Iterable[Sample]:
    return () if value < 0 else (Sample((), value),)
