"""The user's programs in a run: each in a process of its own, started again after a crash.

Owns the lives of services. A life ends because its function returned or raised, or by a kill.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from millrace_simulation.loop import Process
from millrace_simulation.world import Rng, World

PAUSE_S = 0.5
"""What a service manager waits before it starts a service again."""


class Service:
    """One program on a machine of its own. It is over when its function has returned, and when it
    was stopped."""

    def __init__(
        self,
        world: World,
        name: str,
        main: Callable[[], Coroutine[Any, Any, None]],
        *,
        restart_on: tuple[type[Exception], ...],
        on_error: Callable[[str, Exception], None],
    ) -> None:
        self.name = name
        self.starts = 0
        """How many times it was started."""
        self.is_over = False
        self._world = world
        self._main = main
        self._restart_on = restart_on
        self._on_error = on_error
        self._process: Process | None = None
        self._killed: asyncio.Future[None] = world.loop.create_future()
        self._is_stopped = False
        self._ended = asyncio.Event()

    async def keep_up(self) -> None:
        """Starts the program, and again until it has returned or raised."""
        world = self._world
        while not (self.is_over or self._is_stopped):
            self.starts += 1
            process = self._process = world.process(self.name, f"{self.name}.{self.starts}")
            self._killed = world.loop.create_future()
            task = world.loop.start(process, self._main())
            await asyncio.wait([task, self._killed], return_when=asyncio.FIRST_COMPLETED)
            self._process = None
            world.end_client(process)
            if task.done():
                self._judge(task)
            if not self.is_over:
                await asyncio.sleep(PAUSE_S)
        self.is_over = True
        self._ended.set()

    def _judge(self, task: asyncio.Task[None]) -> None:
        """What the end of its function means: that of the service, another start, a failure."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, self._restart_on):
            self._world.trace.note(f"{self.name} raised {error!r}")
            return
        self.is_over = True
        if isinstance(error, Exception):
            self._on_error(self.name, error)

    def kill(self) -> None:
        """kill -9. It is started again."""
        if self._process is not None and not self._killed.done():
            self._world.trace.sometimes("a service was killed")
            self._killed.set_result(None)
            # At once, and not when the loop gets to `keep_up`: nothing of it may run on.
            self._process.end()

    async def pause(self, seconds: float) -> None:
        """SIGSTOP, and after so long SIGCONT."""
        process = self._process
        if process is not None:
            self._world.trace.sometimes("a service was paused")
            process.pause()
            await asyncio.sleep(seconds)
            self._world.loop.resume(process)

    async def stop(self) -> None:
        """kill -9 for good; returns when nothing of it runs."""
        self._is_stopped = True
        self.kill()
        await self._ended.wait()

    async def finished(self) -> None:
        """Returns when it is over."""
        await self._ended.wait()


class Services:
    """All services of a run."""

    def __init__(self, world: World, *, on_error: Callable[[str, Exception], None]) -> None:
        self._world = world
        self._on_error = on_error
        self._services: dict[str, Service] = {}

    def start(
        self,
        name: str,
        main: Callable[[], Coroutine[Any, Any, None]],
        *,
        restart_on: tuple[type[Exception], ...],
    ) -> Service:
        """Raises `ValueError` where there is one of that name."""
        if name in self._services:
            raise ValueError(f"there is a service {name!r}; give each a name of its own")
        service = Service(self._world, name, main, restart_on=restart_on, on_error=self._on_error)
        self._services[name] = service
        self._world.start_task(service.keep_up())
        return service

    def any(self, rng: Rng) -> Service | None:
        """One that is not over."""
        running = [each for each in self._services.values() if not each.is_over]
        return rng.choice(running) if running else None
