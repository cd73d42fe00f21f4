"""What the connections of one server have in common."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from millrace_server.environment.seams import Clock, ColdReads, Spawn
from millrace_server.limits import Limits
from millrace_server.loop.fair_scheduler import FairScheduler
from millrace_server.net.deferred_release import DeferredRelease
from millrace_server.net.frame_reader import Scratch
from millrace_server.net.handler import RequestHandler
from millrace_server.net.memory_budget import MemoryBudget

if TYPE_CHECKING:
    from millrace_server.net.connection import Connection


class Owner(Protocol):
    """Who keeps the connections."""

    def opened(self, connection: Connection) -> bool:
        """Takes note of a new connection; False when there are too many."""

    def lost(self, connection: Connection) -> None: ...


@dataclass(slots=True)
class Shared:
    """Handed to every connection of a server; all of it belongs to one event loop."""

    loop: asyncio.AbstractEventLoop
    handler: RequestHandler
    owner: Owner
    limits: Limits
    clock: Clock
    spawn: Spawn
    scratch: Scratch
    memory: MemoryBudget
    turns: FairScheduler
    remains: DeferredRelease
    cold_reads: ColdReads | None
