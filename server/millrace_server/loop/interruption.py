"""Waiting for work that a fault elsewhere makes pointless."""

from __future__ import annotations

import asyncio


async def run_unless(failed: asyncio.Future[None], task: asyncio.Task[None]) -> None:
    """Returns when `task` is done; raises what it raises.

    When `failed` is done first, or when the caller is cancelled, the task is cancelled, and has
    ended when this raises.
    """
    try:
        await asyncio.wait((task, failed), return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        await _cancel(task)
        raise
    if failed.done():
        await _cancel(task)
        failed.result()
    task.result()


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        # Its exception is seen, and is not the one that counts.
        task.exception()
