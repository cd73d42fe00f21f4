"""Work that a fault elsewhere makes pointless does not go on."""

from __future__ import annotations

import asyncio

import pytest

from millrace_server.loop.interruption import run_unless


async def never() -> None:
    await asyncio.get_running_loop().create_future()


async def refused() -> None:
    raise LookupError("not found")


def failing() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


async def test_a_fault_ends_work_that_waits_for_ever_and_is_what_its_caller_gets() -> None:
    failed, task = failing(), asyncio.ensure_future(never())
    waiting = asyncio.ensure_future(run_unless(failed, task))
    await asyncio.sleep(0)
    failed.set_exception(OSError("the disk is gone"))
    with pytest.raises(OSError, match="the disk is gone"):
        await waiting
    assert task.cancelled()


async def test_a_fault_comes_before_the_error_of_the_work() -> None:
    failed, task = failing(), asyncio.ensure_future(refused())
    failed.set_exception(OSError("the disk is gone"))
    with pytest.raises(OSError, match="the disk is gone"):
        await run_unless(failed, task)


async def test_without_a_fault_the_work_has_its_own_end() -> None:
    await run_unless(failing(), asyncio.ensure_future(asyncio.sleep(0)))
    with pytest.raises(LookupError, match="not found"):
        await run_unless(failing(), asyncio.ensure_future(refused()))


async def test_a_caller_that_is_cancelled_cancels_the_work() -> None:
    task = asyncio.ensure_future(never())
    waiting = asyncio.ensure_future(run_unless(failing(), task))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert task.cancelled()
