"""Waiting for a step in a worker thread, cancelled or not.

Owns the meaning of a cancellation meanwhile. Does not know the step.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


async def shielded(step: asyncio.Future[T]) -> T:
    """Returns when the step has ended, even if the caller is cancelled; raises what it raises.

    The caller closes the step's files afterwards. A descriptor that is closed under a running
    system call may already be another file's.
    """
    try:
        return await asyncio.shield(step)
    except asyncio.CancelledError:
        while not step.done():
            await asyncio.wait([step])
        raise
