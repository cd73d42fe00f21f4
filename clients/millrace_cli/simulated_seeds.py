"""Seeds of a user's simulation, in processes of their own.

Owns how a main function is found, and how seeds are given to worker processes. All workers hash
strings alike: a set of names has the same order in each run of a seed.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from millrace_cli.exits import CommandError
from millrace_simulation import Outcome, SimulationConfig
from millrace_simulation.simulation import Main

RUNS_PER_WORKER = 50
"""Then a new process takes over: a user's module may keep what its runs leave behind."""
QUEUED_PER_WORKER = 2


@dataclass(frozen=True, slots=True)
class Runs:
    """What to run: `target` is MODULE:FUNCTION or FILE:FUNCTION."""

    target: str
    config: SimulationConfig

    def run(self, seed: int, *, is_shown: bool) -> tuple[Outcome, float]:
        """Runs a seed in this process; returns its outcome and the CPU seconds it took."""
        main = load(self.target)
        started_s = time.process_time()
        outcome = self.config.run(main, seed=seed, show=_show if is_shown else None)
        return outcome, time.process_time() - started_s

    def outcomes(
        self, seeds: Sequence[int], *, jobs: int, is_shown: bool
    ) -> Generator[tuple[Outcome, float]]:
        """Runs seeds in so many processes, and yields outcomes as they come.

        Close it to end the processes. Raises `CommandError` where the target cannot be loaded, or
        a process dies.
        """
        os.environ["PYTHONHASHSEED"] = "0"
        executor = ProcessPoolExecutor(
            min(jobs, len(seeds)),
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_begin,
            max_tasks_per_child=RUNS_PER_WORKER,
        )
        left = iter(seeds)
        running: set[Future[tuple[Outcome, float]]] = set()
        try:
            while True:
                for seed in left:
                    running.add(executor.submit(self.run, seed, is_shown=is_shown))
                    if len(running) >= jobs * QUEUED_PER_WORKER:
                        break
                if not running:
                    return
                # Not `as_completed`: Python drops a ^C that comes while it closes a generator.
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        except BrokenProcessPool:
            raise CommandError(
                "a process ended before its seed did: the code that it ran ended it, or the "
                "system killed it because memory was short"
            ) from None
        finally:
            # A seed may take long: workers that still run are ended.
            for process in list((executor._processes or {}).values()):
                process.terminate()
            executor.shutdown(cancel_futures=True)


def load(target: str) -> Main:
    """The main function. Raises `CommandError`."""
    where, _, name = target.rpartition(":")
    if not where or not name:
        raise CommandError(f"{target!r} is not MODULE:FUNCTION or FILE.py:FUNCTION")
    # As for `python -m MODULE`.
    directory = str(Path.cwd())
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        module = _file(where) if where.endswith(".py") else importlib.import_module(where)
    except Exception as error:
        raise CommandError(f"{where} cannot be imported: {error!r}") from error
    main = getattr(module, name, None)
    if not inspect.iscoroutinefunction(main):
        raise CommandError(f"{where} has no `async def {name}(sim)`")
    loaded: Main = main
    return loaded


def _file(path: str) -> object:
    name = f"millrace_simulated_{Path(path).stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise ImportError("no such file")
    # As for `python FILE`: what lies beside it can be imported.
    sys.path.insert(0, str(Path(path).resolve().parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _begin() -> None:
    """A worker starts. ^C is the command's, which ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _show(line: str) -> None:
    print(line, flush=True)
