"""Many inputs for many targets, in shares that are run, noted and never run again.

Owns the plan, the workers' processes and the notes. A share is up to a million inputs for
one target; each is a process, so that what one share finds or holds does not touch another. The
notes are lines of JSON in the directory of the campaign, which goes on where it was when it is
started again; a share that found something is run again, to show that it was mended.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.fuzz.driver import GROWTH_BYTES_MAX

SHARE_INPUTS = 1_000_000
_LINES_OF_A_DEATH = 40


@dataclass(frozen=True, slots=True)
class Share:
    """Inputs for one target; `number` tells it from others of that target."""

    target: str
    number: int
    inputs: int
    guided: bool


@dataclass(slots=True)
class Result:
    """What a share came to. `finds` are sentences; without any, nothing was found."""

    share: Share
    seed: int
    inputs: int = 0
    seconds: float = 0.0
    slowest_ms: float = 0.0
    peak_bytes: int = 0
    growth_bytes: int = 0
    crashes: int = 0
    hangs: int = 0
    finds: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Tally:
    """All results of one target, or of all."""

    inputs: int = 0
    seconds: float = 0.0
    slowest_ms: float = 0.0
    peak_bytes: int = 0
    growth_bytes: int = 0
    crashes: int = 0
    hangs: int = 0

    def add(self, result: Result | Tally) -> None:
        """Takes one more into account."""
        for name in ("inputs", "seconds", "crashes", "hangs"):
            setattr(self, name, getattr(self, name) + getattr(result, name))
        for name in ("slowest_ms", "peak_bytes", "growth_bytes"):
            setattr(self, name, max(getattr(self, name), getattr(result, name)))

    def __str__(self) -> str:
        return (
            f"{self.inputs:>10,} inputs {self.inputs / max(self.seconds, 1e-9):>8,.0f}/s  "
            f"worst {self.slowest_ms:>6.2f} ms  peak {self.peak_bytes / 2**20:>4.0f} MiB "
            f"(+{self.growth_bytes / 2**20:.0f})  {self.crashes} crashes {self.hangs} hangs"
        )


class Campaign:
    """The shares of one directory."""

    def __init__(self, directory: Path, *, seed: int) -> None:
        self._directory = directory
        self._notes = directory / "results.jsonl"
        self._seed = seed

    def run(
        self, targets: Sequence[str], *, inputs: int, guided: bool, workers: int
    ) -> Iterator[Result]:
        """Results of all shares, those known from earlier first.

        Shares of one target have one corpus, so they come one after the other where atheris
        finds the inputs.
        """
        known = self._known()
        queues = [list(_shares(target, inputs, guided)) for target in targets]
        for share in (share for queue in queues for share in queue):
            if share in known:
                yield known[share]
        left = [deque(share for share in queue if share not in known) for queue in queues]
        with ThreadPoolExecutor(workers) as pool:
            running = {pool.submit(self._run, queue.popleft()): queue for queue in left if queue}
            while running:
                done = next(as_completed(running))
                queue = running.pop(done)
                if queue:
                    running[pool.submit(self._run, queue.popleft())] = queue
                yield done.result()

    def _known(self) -> dict[Share, Result]:
        if not self._notes.exists():
            return {}
        notes = [json.loads(line) for line in self._notes.read_text().splitlines()]
        results = [Result(Share(**note.pop("share")), **note) for note in notes]
        return {result.share: result for result in results if not result.finds}

    def _run(self, share: Share) -> Result:
        seed = (self._seed + share.number) % 2**31
        command = [sys.executable, "-m", "tests.fuzz.worker"]
        command += [share.target, str(share.inputs), str(seed)]
        corpus = self._directory / "corpus" / share.target.replace(" ", "-")
        if share.guided:
            corpus.mkdir(parents=True, exist_ok=True)
            command.append(str(corpus))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        result = Result(share, seed)
        if done.returncode:
            result.crashes = 1
            end = "\n".join(f"  {line}" for line in done.stderr.splitlines()[-_LINES_OF_A_DEATH:])
            result.finds.append(f"the worker ended with {done.returncode}; seed {seed}\n{end}")
        else:
            _read(result, done.stdout.splitlines()[-1])
        with self._notes.open("a") as notes:
            notes.write(json.dumps(asdict(result)) + "\n")
        return result


def _shares(target: str, inputs: int, guided: bool) -> Iterator[Share]:
    for number, start in enumerate(range(0, inputs, SHARE_INPUTS)):
        yield Share(target, number, min(SHARE_INPUTS, inputs - start), guided)


def _read(result: Result, line: str) -> None:
    report = json.loads(line)
    for name in ("inputs", "seconds", "slowest_ms", "peak_bytes", "growth_bytes"):
        setattr(result, name, report[name])
    result.crashes, result.hangs = len(report["crashes"]), len(report["hangs"])
    result.finds += [f"{data}\n{trace}" for data, trace in report["crashes"]]
    result.finds += [
        f"{data}\ntakes {result.slowest_ms:.0f} ms or less" for data in report["hangs"]
    ]
    if result.growth_bytes >= GROWTH_BYTES_MAX:
        result.finds.append(f"the peak of memory grew by {result.growth_bytes >> 20} MiB")
