"""Clients that are started again and again until the load is over, each time as a new process.

Owns their processes: a life ends by itself, by a kill, or because it was cancelled. One that is
paused goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from millrace_simulation.loop import Process
from millrace_simulation.world import Rng, World
from tests.sim.ledger import Ledger
from tests.sim.options import Options
from tests.sim.topics import Topics


@dataclass(slots=True, eq=False)
class Life:
    """One process of a client; `number` names it in the history."""

    name: str
    number: int
    rng: Rng
    process: Process
    killed: asyncio.Future[None]
    is_cancelled: bool = False
    task: asyncio.Task[None] = field(init=False)


class Clients:
    """All clients under load, and what they need to know of the run."""

    def __init__(self, world: World, options: Options, topics: Topics, ledger: Ledger) -> None:
        self.world = world
        self.options = options
        self.topics = topics
        self.ledger = ledger
        self.is_over = False
        self._lives: dict[str, Life] = {}

    async def keep(self, name: str, live: Callable[[Life], Coroutine[Any, Any, None]]) -> None:
        """Starts a client, and again whenever it has ended, until the load is over."""
        world, rng = self.world, self.world.rng.fork(name)
        count = 0
        while not self.is_over:
            count += 1
            process = world.process(name, f"{name}.{count}")
            number, killed = self.ledger.process(process.name), world.loop.create_future()
            life = Life(process.name, number, rng.fork(str(count)), process, killed)
            life.task = world.loop.start(process, live(life))
            self._lives[name] = life
            await asyncio.wait([life.task, killed], return_when=asyncio.FIRST_COMPLETED)
            del self._lives[name]
            world.end_client(process)
            if killed.done():
                self.ledger.killed(life.name, life.number)
            elif life.task.cancelled():
                if not life.is_cancelled:
                    world.trace.violation(f"{name} was cancelled, and not by the run")
            elif (error := life.task.exception()) is not None:
                world.trace.violation(f"{name} failed: {error!r}")
            await asyncio.sleep(rng.random() * 0.4)

    def kill(self, rng: Rng) -> None:
        """kill -9 of one client."""
        life = self._any(rng)
        if life is not None and not life.killed.done():
            self.world.trace.sometimes("a client was killed")
            life.killed.set_result(None)
            # At once, and not when the loop gets to `keep`: nothing of it may run on.
            life.process.end()

    async def pause(self, rng: Rng, pause_s: float) -> None:
        """SIGSTOP of one client, and SIGCONT."""
        life = self._any(rng)
        if life is not None:
            self.world.trace.sometimes("a client was paused")
            life.process.pause()
            await asyncio.sleep(pause_s)
            self.world.loop.resume(life.process)

    async def cancel(self, rng: Rng) -> None:
        """Cancels one client, and some once more while they are closing."""
        life = self._any(rng)
        if life is None:
            return
        self.world.trace.sometimes("a client was cancelled")
        life.is_cancelled = True
        life.task.cancel()
        if rng.random() < 0.5:
            await asyncio.sleep(rng.random())
            life.task.cancel()

    def _any(self, rng: Rng) -> Life | None:
        return self._lives[rng.choice(list(self._lives))] if self._lives else None
