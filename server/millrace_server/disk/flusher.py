"""Group commit: one sync makes every batch durable that was appended before it began.

Owns the one flush in flight per log. Does not know the steps of a flush (`log.flush`), and does not
know the requests that wait for it (`partitions.ack_purgatory`). A flush that is requested while
another one runs starts when that one ends, and covers everything appended meanwhile: under load
the disk sets the pace, and no timer is needed.

    request ──► begin_flush ──► sync ──► on_durable ──► settle ──► again, if requested
                (loop)          (thread)  (loop)         (thread)

Every step is a callback of the step before it, without a task in between, so `on_durable` runs in
the same pass of the event loop in which the result of the sync arrives.

Lifecycle: running until `close` or a disk error, then stopped for good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from millrace_server.environment.seams import Environment
from millrace_server.log import FlushTicket, PartitionLog
from millrace_server.statistics import Histogram


class Flusher:
    """Makes one log durable on request; belongs to the log's event loop."""

    __slots__ = (
        "_began_ns",
        "_closing",
        "_durations",
        "_env",
        "_is_missed",
        "_is_requested",
        "_is_running",
        "_log",
        "_loop",
        "_on_checkpoint",
        "_on_durable",
        "_on_failure",
        "_ticket",
        "_wants_checkpoint",
    )

    def __init__(
        self,
        log: PartitionLog,
        env: Environment,
        *,
        on_durable: Callable[[], None],
        on_failure: Callable[[BaseException], None],
        durations: Histogram,
        on_checkpoint: Callable[[bool], None] | None = None,
    ) -> None:
        """`on_durable()` runs when `log.durable_offset` has moved.

        `on_failure(error)` runs once, after the disk has failed. `durations` observes how long
        each sync took. `on_checkpoint(is_written)` runs after each flush that was to write the
        log's checkpoint; a full disk leaves it to a later one.
        """
        self._log = log
        self._env = env
        self._loop = asyncio.get_running_loop()
        self._on_durable = on_durable
        self._on_failure: Callable[[BaseException], None] | None = on_failure
        self._durations = durations
        self._on_checkpoint = on_checkpoint
        self._began_ns = 0
        self._ticket: FlushTicket | None = None
        self._is_missed = False
        self._is_requested = False
        self._is_running = False
        self._wants_checkpoint = False
        self._closing: asyncio.Future[None] | None = None

    def request(self, *, checkpoint: bool = False) -> None:
        """Requests a flush of everything appended so far; cheap, and may be repeated.

        With `checkpoint` the log's checkpoint is written too. A stopped flusher does nothing before
        `reopen`.
        """
        if self._log.is_failed:
            return
        if self._closing is not None:
            self._is_missed = True
            self._wants_checkpoint |= checkpoint
            return
        self._is_requested = True
        self._wants_checkpoint |= checkpoint
        if not self._is_running:
            self._is_running = True
            # The flush covers every append of this pass of the loop.
            self._loop.call_soon(self._begin)

    def fail(self, error: BaseException) -> None:
        """Stops for good after a disk error, and reports it once.

        Also for an error that was met outside a flush.
        """
        self._log.fail(error)
        if self._on_failure is not None:
            report, self._on_failure = self._on_failure, None
            report(error)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called, and `reopen` not since."""
        return self._closing is not None

    def reopen(self) -> None:
        """Takes requests again, and does those that have come since `close`, which has returned."""
        self._closing = None
        if self._is_missed:
            self._is_missed = False
            self.request()

    async def close(self) -> None:
        """Stops after the flush that runs or was requested. The log may be closed afterwards."""
        if self._closing is None:
            self._closing = self._loop.create_future()
            if not self._is_running:
                self._closing.set_result(None)
        # A log must not be closed under its flush: cancelling the caller ends the wait alone.
        await asyncio.shield(self._closing)

    def _begin(self) -> None:
        ticket: FlushTicket | None = None
        try:
            while ticket is None and self._is_requested and not self._log.is_failed:
                self._is_requested = False
                checkpoint, self._wants_checkpoint = self._wants_checkpoint, False
                ticket = self._log.begin_flush(checkpoint=checkpoint)
        except Exception as error:
            self.fail(error)
        if ticket is None:
            self._is_running = False
            if self._closing is not None and not self._closing.done():
                self._closing.set_result(None)
            return
        self._ticket = ticket
        self._began_ns = self._env.clock.monotonic_ns()
        self._env.spawn.blocking(ticket.sync).add_done_callback(self._synced)

    def _synced(self, step: asyncio.Future[None]) -> None:
        ticket = self._ticket
        assert ticket is not None
        try:
            step.result()
            self._log.finish_flush(ticket)
            self._durations.observe(self._env.clock.monotonic_ns() - self._began_ns)
            self._on_durable()
        except (Exception, asyncio.CancelledError) as error:
            self._end(error)
            return
        if ticket.has_chores:
            self._env.spawn.blocking(ticket.settle).add_done_callback(self._settled)
        else:
            self._end(None)

    def _settled(self, step: asyncio.Future[None]) -> None:
        try:
            step.result()
        except (Exception, asyncio.CancelledError) as error:
            self._end(error)
        else:
            self._end(None)

    def _end(self, error: BaseException | None) -> None:
        ticket, self._ticket = self._ticket, None
        assert ticket is not None
        self._log.finish_settle(ticket)
        if error is not None:
            self.fail(error)
        elif ticket.checkpoint is not None and self._on_checkpoint is not None:
            self._on_checkpoint(ticket.is_settled)
        self._begin()
