"""The orderly end of a command after its first signal.

Owns the wait and what it says. The work of the command has been cancelled by the signal; what it
began, such as commits, acks and leaving a group, may take `within_s`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from millrace_cli.exits import tell

SAY_AFTER_S = 0.5


async def until_interrupted(
    work: Coroutine[Any, Any, object],
    *,
    stop: Callable[[], None],
    within_s: float,
    waits_for: Callable[[], str],
) -> None:
    """Runs the work. When a signal cancels the caller, calls `stop`, and then waits as `finish`."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        stop()
        await finish(task, within_s=within_s, waits_for=waits_for)
        raise


async def finish(
    work: Coroutine[Any, Any, object] | asyncio.Task[Any],
    *,
    within_s: float,
    waits_for: Callable[[], str],
) -> bool:
    """Returns whether the work has ended by itself. Says what it waits for, if that takes long.

    Cancels the work when its time is over, and when the next signal cancels the caller, which then
    gets `CancelledError`. Raises what the work raises.
    """
    task = work if isinstance(work, asyncio.Task) else asyncio.ensure_future(work)
    try:
        await asyncio.wait([task], timeout=SAY_AFTER_S)
        if not task.done():
            tell(f"waiting up to {within_s:g} s for {waits_for()}; ^C again ends it at once")
            await asyncio.wait([task], timeout=within_s - SAY_AFTER_S)
    finally:
        is_done = task.done()
        if not is_done:
            task.cancel()
            await asyncio.wait([task])
    if is_done and not task.cancelled():
        await task
    return is_done
