"""Statistics: what the registry of this broker holds, read when a client asks."""

from __future__ import annotations

from importlib.metadata import version

from millrace_server.environment.seams import Clock
from millrace_server.loop.fair_scheduler import FairScheduler
from millrace_server.statistics.registry import MetricSamples, Registry


class StatisticsService:
    """Reads the registry in chunks. The broker starts when it is constructed."""

    software_version = version("millrace")

    def __init__(self, registry: Registry, clock: Clock, scheduler: FairScheduler) -> None:
        self.registry = registry
        self._clock = clock
        self._scheduler = scheduler
        self._started_ms = clock.monotonic_ms()

    @property
    def uptime_ms(self) -> int:
        """How long the broker has been running."""
        return self._clock.monotonic_ms() - self._started_ms

    async def read(self, prefix: str) -> list[MetricSamples]:
        """The metrics whose names begin with `prefix`, with all samples."""
        found: list[MetricSamples] = []
        for each in self.registry.read(prefix):
            if each is None:
                await self._scheduler.yield_()
            else:
                found.append(each)
        return found
