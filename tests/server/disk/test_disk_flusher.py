"""Group commit over a real log, with threads; where the disk must be slow or fail, in memory."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import threading
from collections.abc import Callable
from typing import Any

import pytest

from millrace_server.disk.flusher import Flusher as BareFlusher
from millrace_server.environment.seams import Environment
from millrace_server.log import LogConfig, PartitionLog
from millrace_server.partitions.ack_purgatory import AckPurgatory
from millrace_server.statistics import Registry, metrics
from millrace_simulation.disk import FaultyDisk
from tests.hang_timeout import HANG_TIMEOUT_S
from tests.server.log.log_model import DIRECTORY, append

CONFIG = LogConfig()


class GatedDisk(FaultyDisk):
    """Every sync of the log's file waits until it is let through."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Semaphore(0)
        self.waiting = threading.Semaphore(0)
        self.syncs = 0

    def operation(self, name: str, path: str, half: Callable[[], object] | None = None) -> Any:
        if name == "sync" and path.endswith(".log"):
            self.syncs += 1
            self.waiting.release()
            assert self.gate.acquire(timeout=HANG_TIMEOUT_S)
        return super().operation(name, path, half)


class Flusher(BareFlusher):
    """A flusher with appends that wait for it, as a partition has it."""

    def __init__(
        self,
        log: PartitionLog,
        env: Environment,
        *,
        on_durable: Callable[[], object] = lambda: None,
        on_failure: Callable[[BaseException], object] = lambda error: None,
    ) -> None:
        self.acks = AckPurgatory()

        def moved() -> None:
            on_durable()
            self.acks.advance(log.durable_offset)

        def failed(error: BaseException) -> None:
            self.acks.fail(RuntimeError(str(error)))
            on_failure(error)

        durations = Registry().histogram(metrics.FLUSH_DURATION)
        super().__init__(log, env, on_durable=moved, on_failure=failed, durations=durations)
        self.waits_for = log

    def wait_durable(self, end_offset: int) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_ack(error: Exception | None) -> None:
            if error is not None:
                future.set_exception(error)
            elif not future.done():
                future.set_result(None)

        if end_offset <= self.waits_for.durable_offset:
            on_ack(None)
        else:
            self.acks.wait(end_offset, on_ack)
            self.request()
        return future


@pytest.fixture
def gated(env: Environment) -> tuple[Environment, GatedDisk, PartitionLog]:
    disk = GatedDisk()
    log = PartitionLog.create(disk, DIRECTORY, CONFIG)
    return dataclasses.replace(env, disk=disk), disk, log


async def in_thread(env: Environment, work: Callable[[], object]) -> None:
    await env.spawn.blocking(work)


async def test_a_waiter_is_told_when_its_batch_is_durable(env: Environment) -> None:
    log = PartitionLog.create(env.disk, DIRECTORY, CONFIG)
    told: list[int] = []
    flusher = Flusher(log, env, on_durable=lambda: told.append(log.durable_offset))
    append(log, [b"a", b"b"])
    waiting = flusher.wait_durable(2)
    assert not waiting.done()
    await waiting
    assert log.durable_offset == 2
    assert told == [2]
    assert flusher.wait_durable(1).done()
    await flusher.close()
    log.close()


async def test_one_sync_serves_all_that_came_while_the_last_one_ran(
    gated: tuple[Environment, GatedDisk, PartitionLog],
) -> None:
    env, disk, log = gated
    flusher = Flusher(log, env)
    append(log, [b"first"])
    first = flusher.wait_durable(1)
    await in_thread(env, disk.waiting.acquire)
    later = []
    for number in range(50):
        append(log, [b"%d" % number])
        later.append(flusher.wait_durable(log.end_offset))
    disk.gate.release()
    await first
    assert not any(waiting.done() for waiting in later)
    disk.gate.release()
    await asyncio.gather(*later)
    assert disk.syncs == 2
    await flusher.close()


async def test_a_failed_sync_fails_every_waiter_and_is_reported_once(
    gated: tuple[Environment, GatedDisk, PartitionLog],
) -> None:
    env, disk, log = gated
    failures: list[BaseException] = []
    flusher = Flusher(log, env, on_failure=failures.append)
    append(log, [b"a"])
    first = flusher.wait_durable(1)
    await in_thread(env, disk.waiting.acquire)
    append(log, [b"b"])
    second = flusher.wait_durable(2)
    disk.fail_at = {disk.operations: errno.EIO}
    disk.gate.release()
    for waiting in (first, second, flusher.wait_durable(2)):
        with pytest.raises(RuntimeError, match="Input/output error"):
            await waiting
    assert log.is_failed
    assert [getattr(failure, "errno", None) for failure in failures] == [errno.EIO]
    flusher.request()
    await flusher.close()
    assert disk.syncs == 1
    assert log.durable_offset == 0


async def test_close_waits_for_the_flush_and_then_refuses(
    gated: tuple[Environment, GatedDisk, PartitionLog],
) -> None:
    env, disk, log = gated
    flusher = Flusher(log, env)
    append(log, [b"a"])
    waiting = flusher.wait_durable(1)
    await in_thread(env, disk.waiting.acquire)
    closing = asyncio.create_task(flusher.close())
    await asyncio.sleep(0)
    append(log, [b"b"])
    flusher.request()
    assert not closing.done()
    disk.gate.release()
    await closing
    assert waiting.done()
    assert log.durable_offset == 1


async def test_what_is_requested_after_close_is_flushed_when_it_is_opened_again(
    env: Environment,
) -> None:
    log = PartitionLog.create(env.disk, DIRECTORY, CONFIG)
    flusher = Flusher(log, env)
    await flusher.close()
    append(log, [b"a"])
    waiting = flusher.wait_durable(1)
    for _ in range(3):
        await asyncio.sleep(0)
    # The log may be cut now: no flush begins.
    assert flusher.is_closed
    ticket = log.begin_flush()
    assert ticket is not None
    ticket.sync()
    log.finish_flush(ticket)
    log.finish_settle(ticket)
    append(log, [b"b"])
    flusher.reopen()
    await flusher.wait_durable(2)
    assert waiting.done()
    await flusher.close()
    log.close()


async def test_a_cancelled_close_leaves_the_flush_to_its_end(
    gated: tuple[Environment, GatedDisk, PartitionLog],
) -> None:
    env, disk, log = gated
    flusher = Flusher(log, env)
    append(log, [b"a"])
    flusher.request()
    await in_thread(env, disk.waiting.acquire)
    closing = asyncio.create_task(flusher.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    disk.gate.release()
    await flusher.close()
    assert log.durable_offset == 1
    assert log.begin_flush() is None, "the flush has ended and its files are released"


async def test_a_waiter_that_is_cancelled_disturbs_no_other(
    gated: tuple[Environment, GatedDisk, PartitionLog],
) -> None:
    env, disk, log = gated
    flusher = Flusher(log, env)
    append(log, [b"a"])
    impatient, patient = flusher.wait_durable(1), flusher.wait_durable(1)
    impatient.cancel()
    disk.gate.release()
    await patient
    await flusher.close()


async def test_retention_and_checkpoints_run_with_the_flush(env: Environment) -> None:
    config = LogConfig(segment_bytes=100, retention_bytes=300)
    log = PartitionLog.create(env.disk, DIRECTORY, config)
    flusher = Flusher(log, env)
    for _ in range(10):
        append(log, [b"x" * 50])
    await flusher.wait_durable(10)
    flusher.request()
    await flusher.close()
    removed = log.retention(0, high_watermark=10)
    assert removed
    flusher = Flusher(log, env)
    flusher.request()
    await flusher.close()
    names = env.disk.list_directory(DIRECTORY)
    assert f"{0:020d}.log" not in names
    log.discard()
    again = PartitionLog.open(env.disk, DIRECTORY, config, now_ms=0)
    assert again.recovery.scanned_bytes == 0
    assert again.start_offset == log.start_offset
