"""Group commit: one sync serves every batch that waits for it.

Owns the one flush in flight per log and the futures of those who wait. Refuses to know what a
flush does (`log.flush`) and what durability buys (the broker). A flush that is asked for while
one is running starts when that one ends, and covers all that was appended meanwhile: under load
the disk sets the pace, and no timer is needed.

    request ──► begin_flush ──► sync ──► waiters wake ──► settle ──► again, if asked for
                (loop)          (thread)  (loop)          (thread)

Lifecycle: running until `close` or a disk error, then stopped for ever.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from millrace_server.disk.worker import whole
from millrace_server.environment.seams import Environment
from millrace_server.log import FlushTicket, LogClosed, LogFailed, PartitionLog


class Flusher:
    """Makes one log durable, on request; belongs to the log's event loop."""

    __slots__ = (
        "_env",
        "_is_closed",
        "_is_requested",
        "_log",
        "_on_durable",
        "_on_failure",
        "_task",
        "_waiters",
        "_wants_checkpoint",
    )

    def __init__(
        self,
        log: PartitionLog,
        env: Environment,
        *,
        on_durable: Callable[[], None] | None = None,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        """`on_durable` runs when `log.durable_offset` has moved, before the waiters are told.

        `on_failure(error)` runs once, after the disk has failed.
        """
        self._log = log
        self._env = env
        self._on_durable = on_durable
        self._on_failure = on_failure
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._is_requested = False
        self._wants_checkpoint = False
        self._is_closed = False

    def request(self, *, checkpoint: bool = False) -> None:
        """Asks for a flush of all that is appended by now; cheap, and may be repeated.

        With `checkpoint` the log's checkpoint is written too. Nothing happens once it is stopped.
        """
        if self._is_closed or self._log.is_failed:
            return
        self._is_requested = True
        self._wants_checkpoint |= checkpoint
        if self._task is None:
            self._task = self._env.spawn.task(
                self._flush_while_requested(), name=f"flush {self._log.directory}"
            )

    def wait_durable(self, end_offset: int) -> asyncio.Future[None]:
        """Returns a future that is done when everything before `end_offset` is durable.

        Asks for the flush. `end_offset` is at most the log's. The future fails with `LogFailed`
        if the disk does, and with `LogClosed` if the flusher is closed.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        log = self._log
        if end_offset <= log.durable_offset:
            future.set_result(None)
        elif self._is_closed:
            future.set_exception(LogClosed(log.directory))
        elif log.failure is not None:
            future.set_exception(LogFailed(log.directory, log.failure))
        else:
            self._waiters.append((end_offset, future))
            self.request()
        return future

    def fail(self, error: BaseException) -> None:
        """Ends for ever after an error of the disk; those who wait are told, as is the owner.

        For an error that was met outside a flush, which would leave them waiting.
        """
        self._log.fail(error)
        self._fail_waiters(LogFailed(self._log.directory, error))
        if self._on_failure is not None:
            tell, self._on_failure = self._on_failure, None
            tell(error)

    async def close(self) -> None:
        """Ends after the flush that is under way or asked for. The log may then be closed."""
        self._is_closed = True
        while self._task is not None:
            # A log must not be closed under its flush, so being cancelled does not end the wait's
            # subject, only the wait.
            await asyncio.shield(self._task)
        self._fail_waiters(LogClosed(self._log.directory))

    async def _flush_while_requested(self) -> None:
        try:
            while self._is_requested and not self._log.is_failed:
                self._is_requested = False
                checkpoint, self._wants_checkpoint = self._wants_checkpoint, False
                ticket = self._log.begin_flush(checkpoint=checkpoint)
                if ticket is not None:
                    await self._carry_out(ticket)
        except Exception as error:
            self.fail(error)
        finally:
            self._task = None

    async def _carry_out(self, ticket: FlushTicket) -> None:
        try:
            await whole(self._env.spawn.blocking(ticket.sync))
            self._log.finish_flush(ticket)
            self._wake_waiters()
            if ticket.has_chores:
                await whole(self._env.spawn.blocking(ticket.settle))
        finally:
            self._log.finish_settle(ticket)

    def _wake_waiters(self) -> None:
        if self._on_durable is not None:
            self._on_durable()
        durable_offset = self._log.durable_offset
        waiters = self._waiters
        # In order of their offsets, but for duplicates, which wait for an older batch: one of
        # those behind a younger waiter is told together with it, one flush late at worst.
        while waiters and waiters[0][0] <= durable_offset:
            future = waiters.popleft()[1]
            if not future.done():
                future.set_result(None)

    def _fail_waiters(self, error: Exception) -> None:
        while self._waiters:
            future = self._waiters.popleft()[1]
            if not future.done():
                future.set_exception(error)
