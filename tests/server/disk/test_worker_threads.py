"""Blocking calls in threads: in order, each with its own result, and none after the end."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from millrace_server.disk.worker_threads import WorkerThreads


@pytest.fixture
async def workers() -> Iterator[WorkerThreads]:  # type: ignore[misc]
    started = WorkerThreads(2, name="test")
    yield started
    started.close()


def failing() -> None:
    raise OSError(28, "no room")


async def test_each_call_has_its_own_result(workers: WorkerThreads) -> None:
    results = await asyncio.gather(*(workers.submit(pow, 2, n) for n in range(50)))
    assert results == [2**n for n in range(50)]


async def test_an_error_is_the_callers_and_the_thread_goes_on(workers: WorkerThreads) -> None:
    for _ in range(5):
        with pytest.raises(OSError, match="no room"):
            await workers.submit(failing)
    assert await workers.submit(int, "7") == 7


async def test_there_are_no_more_threads_than_calls_nor_than_the_limit(
    workers: WorkerThreads,
) -> None:
    gate, begun = threading.Event(), threading.Semaphore(0)
    idents: set[int] = set()

    def wait() -> None:
        idents.add(threading.get_ident())
        begun.release()
        gate.wait()

    for _ in range(3):
        await workers.submit(int)
    first = workers.submit(wait)
    others = [workers.submit(wait) for _ in range(4)]
    await asyncio.to_thread(lambda: [begun.acquire() for _ in range(2)])
    assert len(idents) == 2
    gate.set()
    await asyncio.gather(first, *others)
    assert len(idents) == 2


async def test_a_call_that_is_cancelled_before_it_begins_is_not_made() -> None:
    workers = WorkerThreads(1, name="test")
    gate = threading.Event()
    made: list[str] = []
    running = workers.submit(gate.wait)
    cancelled = workers.submit(made.append, "cancelled")
    last = workers.submit(made.append, "last")
    cancelled.cancel()
    gate.set()
    await asyncio.gather(running, last)
    assert made == ["last"]
    workers.close()


async def test_the_end_waits_for_all_calls_and_takes_no_more() -> None:
    workers = WorkerThreads(2, name="test")
    made: list[int] = []
    for number in range(100):
        workers.submit(made.append, number)
    workers.close()
    assert sorted(made) == list(range(100))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("test-")]
    with pytest.raises(RuntimeError, match="closed"):
        workers.submit(int)


async def test_an_idle_thread_keeps_nothing_alive(workers: WorkerThreads) -> None:
    class Held:
        pass

    held = Held()
    seen = weakref.ref(held)
    await workers.submit(id, held)
    await workers.submit(int)
    del held
    gc.collect()
    assert seen() is None
