"""Asks brokers one after the other, and does not wait long for one that hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from millrace._background_tasks import mark_seen
from millrace.errors import AuthenticationFailed, MillraceError, NotAuthorized, again

T = TypeVar("T")
NEXT_AFTER_S = 2.0
"""The next broker is asked too when one has not answered for so long. A broker answers such a
question within milliseconds, unless it hangs or the machine is busy."""


async def first_answer(
    asks: Sequence[Callable[[], Coroutine[Any, Any, T]]],
    failures: list[MillraceError],
) -> T | None:
    """The first answer; None when all have failed, with their errors in `failures`.

    The next one is asked when the one before has failed or is late; what is late may still answer.
    Raises `AuthenticationFailed` and `NotAuthorized` at once: the other brokers have the same
    users, with the same rights.
    """
    left = [*asks]
    tasks: list[asyncio.Task[T]] = []
    try:
        while left or tasks:
            if left:
                tasks.append(asyncio.create_task(left.pop(0)()))
                tasks[-1].add_done_callback(mark_seen)
            timeout_s = NEXT_AFTER_S if left else None
            await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            # No variable may hold a task whose error is raised here: the error refers to the frame.
            done = [each for each in tasks if each.done()]
            tasks = [each for each in tasks if not each.done()]
            while done:
                try:
                    return done.pop(0).result()
                except (AuthenticationFailed, NotAuthorized):
                    raise
                except MillraceError as error:
                    failures.append(again(error))
        return None
    finally:
        for each in tasks:
            each.cancel()
        if tasks:
            await asyncio.wait(tasks)
