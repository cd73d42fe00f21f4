"""What the connections of one server have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from millrace_server.environment.seams import Clock, ColdReads, Spawn
from millrace_server.limits import Limits
from millrace_server.loop.fair_scheduler import FairScheduler
from millrace_server.net.deferred_release import DeferredRelease
from millrace_server.net.dialect import Dialect
from millrace_server.net.memory_budget import MemoryBudget
from millrace_server.net.traffic import Traffic
from millrace_wire.frame_reader import Scratch


@dataclass(slots=True)
class Shared:
    """Handed to every connection of a server; all of it belongs to one event loop."""

    loop: asyncio.AbstractEventLoop
    dialects: Sequence[Dialect]
    """In the order in which they are asked whether they recognize a connection."""
    limits: Limits
    clock: Clock
    spawn: Spawn
    scratch: Scratch
    memory: MemoryBudget
    scheduler: FairScheduler
    deferred_release: DeferredRelease
    cold_reads: ColdReads | None
    traffic: Traffic
