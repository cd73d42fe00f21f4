"""An environment whose blocking calls run in real threads, on a real disk."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest_asyncio

from millrace_server.disk.os_disk import OsDisk
from millrace_server.environment.seams import Environment, Listener, at_once

T = TypeVar("T")


class _Clock:
    def wall_ms(self) -> int:
        return 1000

    def monotonic_ms(self) -> int:
        return 1000

    def monotonic_ns(self) -> int:
        return 1_000_000_000


class _Spawn:
    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(2)

    def task(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        return asyncio.create_task(work, name=name)

    def blocking(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self.pool, work, *args)


class _NoNet:
    async def listen(
        self,
        protocol: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        silent_ms_max: int,
        first_frame_bytes_max: int,
        has_tls: bool = False,
        is_for_brokers: bool = False,
        delay_ms: Callable[[str], int] = at_once,
    ) -> Listener:
        raise NotImplementedError("nothing listens here")

    async def connect(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        raise NotImplementedError("nothing connects from here")


@pytest_asyncio.fixture
async def env(tmp_path: Path) -> AsyncIterator[Environment]:
    """Clock, disk and threads; no network."""
    spawn = _Spawn()
    yield Environment(_Clock(), OsDisk(tmp_path / "data"), _NoNet(), random.Random(0), spawn)
    spawn.pool.shutdown()
