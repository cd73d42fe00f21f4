"""The seams of a broker over a disk in memory: a clock that stands still, and work done at once.

With them a broker does the same operations in the same order every time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from millrace_server.broker import Broker
from millrace_server.config import BrokerConfig
from millrace_server.environment.seams import Disk, Environment
from millrace_server.net.listener import OsNet

T = TypeVar("T")
NOW_MS = 1_700_000_000_000


class StoppedClock:
    """See `seams.Clock`."""

    def wall_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return 0

    def monotonic_ns(self) -> int:
        return 0


class AtOnce:
    """See `seams.Spawn`; blocking work is done in the loop, before the call returns."""

    def task(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        return asyncio.get_running_loop().create_task(work, name=name)

    def blocking(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            done.set_result(work(*args))
        except Exception as error:
            done.set_exception(error)
        return done


def broker_on(disk: Disk, *, seed: int = 1, metadata_snapshot_bytes: int = 1_000) -> Broker:
    """A broker without a port; `seed` makes its identifiers."""
    host = Environment(StoppedClock(), disk, OsNet(), random.Random(seed), AtOnce())
    config = BrokerConfig(
        data="memory",
        start_wait_ms=60_000,
        metadata_snapshot_bytes=metadata_snapshot_bytes,
        topic={"segment.bytes": "1000"},
    )
    return Broker(config, host)
