"""A step in a worker thread, and who waits for it.

Owns what being cancelled means meanwhile. Refuses to know what the step does.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


async def whole(step: asyncio.Future[T]) -> T:
    """Waits for a step until it has ended, cancelled or not; raises what it raises.

    Who waits releases the step's files afterwards, and a descriptor that is closed under a running
    system call may already be another file's.
    """
    try:
        return await asyncio.shield(step)
    except asyncio.CancelledError:
        while not step.done():
            await asyncio.wait([step])
        raise
