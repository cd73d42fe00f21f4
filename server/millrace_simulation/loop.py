"""An event loop that is driven by a seed: virtual time, no selector, no threads, no sleeping.

Owns time and the order in which callbacks run. Knows no network and no disk; `create_connection`
goes to the network it is given.

What asyncio promises stays: `call_soon` is first in, first out, and a timer never fires early.
What a real machine leaves open is drawn from the seed: the order of things that are due at the
same moment, and how much comes in from outside between two turns of the loop. For the latter each
turn takes a random time, up to `TURN_S_MAX`, so that messages and threads get in between callbacks
that follow each other. Everything outside, a message, a finished thread, is a timer.

Hashes of objects are addresses and differ from run to run, and asyncio keeps tasks and futures in
sets: here they are hashed by the number in which they were made.

A process is a context variable that tasks, timers and callbacks inherit. When it has ended, none
of them ever runs again: that is what `kill -9` looks like from inside. While it is paused, as by
SIGSTOP, they are held, and run in their order when it goes on.

`time` and the timers of a process follow the clock of its machine; `now_s` and `at` are true time,
for what belongs to no machine.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, Protocol

from millrace_simulation.clock import MachineClock

TURN_S_MAX = 20e-6
_TASKS_KEPT_MIN = 64
_CLEANUPS_MAX = 10


class NotSimulated(RuntimeError):
    """A simulated process asked for something that a simulation does not have."""


class Stuck(Exception):
    """Nothing is left that could ever happen, or more happened than a run may take."""


class Process:
    """A running program on a machine; `tasks` are those that may not be finished.

    Invariant: `runs == is_alive and not is_paused`.
    """

    def __init__(self, machine: str, name: str, clock: MachineClock) -> None:
        self.machine = machine
        self.name = name
        self.clock = clock
        self.is_alive = True
        self.is_paused = False
        self.runs = True
        self.held: list[SimHandle] = []
        """What became due while it was paused, in order."""
        self.context = contextvars.Context()
        self.context.run(CURRENT.set, self)
        self.tasks: list[asyncio.Task[Any]] = []
        self._tasks_kept = _TASKS_KEPT_MIN

    def end(self) -> None:
        """kill -9, or the end of its main function: nothing of it runs any more."""
        self.is_alive = self.is_paused = self.runs = False
        self.held.clear()

    def pause(self) -> None:
        """SIGSTOP: its callbacks and timers wait; kernel, network and the others go on."""
        if self.is_alive:
            self.is_paused, self.runs = True, False

    def note(self, task: asyncio.Task[Any]) -> None:
        """Remembers a task, so that it is not collected, and run, after the process has ended."""
        self.tasks.append(task)
        if len(self.tasks) > self._tasks_kept:
            self.tasks = [task for task in self.tasks if not task.done()]
            self._tasks_kept = max(_TASKS_KEPT_MIN, 2 * len(self.tasks))

    def discard(self) -> None:
        """Takes the tasks apart without a word, at the end of the run.

        Code that cleans up may wait for something, and start tasks for it, several times over.
        """
        while self.tasks:
            task = self.tasks.pop()
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            for _ in range(_CLEANUPS_MAX):
                try:
                    self.context.run(task.get_coro().close)
                except BaseException:
                    continue
                break


CURRENT: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


def running_process() -> Process:
    """The process whose code runs now."""
    process = CURRENT.get()
    assert process is not None, "this runs in no process"
    return process


class SimHandle(asyncio.TimerHandle):
    """A callback that is due. asyncio's own asks its loop twice whether it is to be debugged."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._context = contextvars.copy_context() if context is None else context
        self._cancelled = False

    def cancel(self) -> None:
        """A cancelled timer is dropped when its time comes."""
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]


class SimFuture(asyncio.Future[Any]):
    """A future with a hash that is the same in every run."""

    number: int
    process: Process | None

    def __hash__(self) -> int:
        return self.number


class SimTask(asyncio.Task[Any]):
    """A task with a hash that is the same in every run."""

    def __init__(
        self, number: int, coro: Coroutine[Any, Any, Any], process: Process | None, **options: Any
    ) -> None:
        self.number = number
        self.process = process
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self.number


class Dial(Protocol):
    """The network as the loop needs it."""

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]: ...


class SimLoop(asyncio.BaseEventLoop):
    """See the head of this module. `on_unhandled` gets what asyncio would merely log."""

    def __init__(
        self, rng: random.Random, *, on_unhandled: Callable[[str], None], turns_max: int
    ) -> None:
        super().__init__()
        self.network: Dial | None = None
        self.turns = 0
        self._turns_max = turns_max
        self._rng = rng
        self.now_s = 1000.0
        """The true time. `_zero_s` and `_rate` are the clock of the process that runs."""
        self._running: Process | None = None
        self._zero_s, self._rate = 0.0, 1.0
        self._numbers = count()
        self._timers: list[tuple[float, float, int, SimHandle]] = []
        self._on_unhandled = on_unhandled
        self._ready: Any = self._ready

    def time(self) -> float:
        return self._zero_s + self.now_s * self._rate

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> SimHandle:
        handle = SimHandle(self.now_s, callback, args, context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> SimHandle:
        return self.at(self.now_s + delay / self._rate, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> SimHandle:
        return self.at((when - self._zero_s) / self._rate, callback, *args, context=context)

    def at(
        self,
        true_s: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> SimHandle:
        """Calls at a moment of the true time."""
        timer = SimHandle(true_s, callback, args, context)
        heapq.heappush(self._timers, (true_s, self._rng.random(), next(self._numbers), timer))
        return timer

    def create_future(self) -> SimFuture:
        future = SimFuture(loop=self)
        future.number = next(self._numbers)
        future.process = CURRENT.get()
        return future

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> SimTask:
        self._check_closed()  # type: ignore[attr-defined]
        process = CURRENT.get() if context is None else context.get(CURRENT)
        number = next(self._numbers)
        name = name or f"task {number}"
        task = SimTask(number, coro, process, loop=self, name=name, context=context)
        if process is not None:
            process.note(task)
        return task

    def start(self, process: Process, work: Coroutine[Any, Any, Any]) -> SimTask:
        """Runs a coroutine in a process."""
        return self.create_task(work, context=process.context)

    def resume(self, process: Process) -> None:
        """SIGCONT: what was held is run, timers that are overdue among it."""
        if process.is_paused:
            process.is_paused, process.runs = False, True
            held, process.held = process.held, []
            self._ready.extend(held)

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        assert self.network is not None
        return await self.network.connect(protocol_factory, host, port)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        raise NotSimulated(f"{func} would run in a thread; a simulated process has only one")

    async def create_server(self, *args: Any, **options: Any) -> asyncio.Server:
        raise NotSimulated("a simulated process listens only as a broker does")

    async def create_datagram_endpoint(  # type: ignore[override]
        self, *args: Any, **options: Any
    ) -> tuple[asyncio.DatagramTransport, asyncio.DatagramProtocol]:
        raise NotSimulated("a simulated network has connections, and no datagrams")

    async def subprocess_exec(self, *args: Any, **options: Any) -> Any:
        raise NotSimulated("a simulated process starts no other program")

    subprocess_shell = subprocess_exec

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        source = context.get("task") or context.get("future")
        process = getattr(source, "process", None) or CURRENT.get()
        if process is None or process.is_alive:
            self._on_unhandled(f"{context['message']}: {context.get('exception')!r} {source!r}")

    def close(self) -> None:
        """What is left may still be taken apart: its calls are accepted, and never come."""
        self._timers.clear()
        super().close()

    # What BaseEventLoop calls

    def _run_once(self) -> None:
        """Turns of the loop until it is to stop: `run_forever` adds nothing between them."""
        ready, timers, random_ = self._ready, self._timers, self._rng.random
        popleft, pop = ready.popleft, heapq.heappop
        while not self._stopping:  # type: ignore[attr-defined]
            self.turns += 1
            if self.turns > self._turns_max:
                raise Stuck(f"{self._turns_max} turns of the loop")
            while timers and timers[0][3]._cancelled:
                pop(timers)
            if ready:
                self.now_s += random_() * TURN_S_MAX
            elif timers:
                self.now_s = max(self.now_s, timers[0][0])
            else:
                raise Stuck("nothing is left to happen")
            now_s = self.now_s
            while timers and timers[0][0] <= now_s:
                ready.append(pop(timers)[3])
            for _ in range(len(ready)):
                handle = popleft()
                if handle._cancelled:
                    continue
                context = handle._context
                process = context.get(CURRENT)
                if process is not self._running:
                    self._switch_to(process)
                if process is not None and not process.runs:
                    if process.is_paused:
                        process.held.append(handle)
                    continue
                callback = handle._callback
                try:
                    context.run(callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self._report(callback, process, error)

    def run_in(
        self, process: Process, context: contextvars.Context, callback: Callable[[], object]
    ) -> None:
        """Runs a callback of a process at once, from the code of the world."""
        before = self._running
        self._switch_to(process)
        try:
            context.run(callback)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._report(callback, process, error)
        finally:
            self._switch_to(before)

    def _report(
        self, callback: Callable[..., object], process: Process | None, error: BaseException
    ) -> None:
        if process is None or process.is_alive:
            # Not its representation, which has an address: that differs by run.
            name = getattr(callback, "__qualname__", type(callback).__name__)
            self._on_unhandled(f"in callback {name}: {error!r}")

    def _switch_to(self, process: Process | None) -> None:
        """Has the clock that `time` tells be that of a process; None: the true one."""
        self._running = process
        if process is None:
            self._zero_s, self._rate = 0.0, 1.0
        else:
            self._zero_s, self._rate = process.clock.zero_s, process.clock.rate

    def _write_to_self(self) -> None:
        """There is no selector to wake."""

    def _process_events(self, event_list: Any) -> None:
        """There are no events: what comes from outside is a timer."""
