"""How far an import is, for who waits: a bar on a terminal, lines elsewhere, both on stderr.

Owns the looking: ranges that are done are marked in the directory, wherever their tasks run, so it
works alike on a laptop, a cluster and Spark Connect. Stdout is the summary's.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from millrace_spark.pipeline.directory import LandingDirectory
from millrace_spark.pipeline.landing_task import Landed
from millrace_spark.pipeline.ledger import Landing
from millrace_spark.ranges import OffsetRange

LOOK_S = 0.2
LINE_S = 5.0


class Display(Protocol):
    """What shows the progress of one landing."""

    def show(self, *, offsets: int, records: int) -> None:
        """So many of the landing's offsets are done, and so many records were there."""

    def close(self) -> None:
        """The landing is over, one way or the other."""


class Progress:
    """Shows landings while they run, or with `is_quiet` nothing."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        self._is_quiet = is_quiet

    def say(self, line: str) -> None:
        """One line for who watches."""
        if not self._is_quiet:
            print(line, file=sys.stderr, flush=True)

    @contextmanager
    def watching(self, directory: LandingDirectory, landing: Landing) -> Iterator[None]:
        """Shows how far `landing` is until the block is left."""
        if self._is_quiet or not landing.ranges:
            yield
            return
        display: Display = _Bar(landing) if sys.stderr.isatty() else _Lines(landing)
        is_over = threading.Event()
        watcher = threading.Thread(
            target=_watch, args=(directory, landing, display, is_over), name="import-progress"
        )
        watcher.start()
        try:
            yield
        finally:
            is_over.set()
            watcher.join()


def _watch(
    directory: LandingDirectory, landing: Landing, display: Display, is_over: threading.Event
) -> None:
    done: dict[int, Landed] = {}
    try:
        while True:
            # The last look comes after the end, so that the bar is full.
            was_over = is_over.wait(LOOK_S)
            for index, text in directory.marks(landing.number, known=done).items():
                landed = Landed.decode(text)
                if landed is not None:
                    done[index] = landed
            display.show(
                offsets=_offsets(landing.ranges, done),
                records=sum(each.records for each in done.values()),
            )
            if was_over:
                return
    finally:
        display.close()


def _offsets(ranges: Sequence[OffsetRange], done: dict[int, Landed]) -> int:
    return sum(len(ranges[index]) for index in done)


class _Bar:
    """A bar with rate and lag."""

    def __init__(self, landing: Landing) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        self._total = len(landing)
        self._started = time.monotonic()
        self._progress = RichProgress(
            TextColumn("importing"),
            BarColumn(),
            TextColumn("{task.fields[told]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._bar = self._progress.add_task("", total=self._total, told="")
        self._progress.start()

    def show(self, *, offsets: int, records: int) -> None:
        told = _told(records, time.monotonic() - self._started, self._total - offsets)
        self._progress.update(self._bar, completed=offsets, told=told)

    def close(self) -> None:
        self._progress.stop()


class _Lines:
    """A line now and then."""

    def __init__(self, landing: Landing) -> None:
        self._total = len(landing)
        self._started = self._told = time.monotonic()

    def show(self, *, offsets: int, records: int) -> None:
        now = time.monotonic()
        if now - self._told >= LINE_S:
            self._told = now
            told = _told(records, now - self._started, self._total - offsets)
            print(f"importing: {told}", file=sys.stderr, flush=True)

    def close(self) -> None:
        pass


def _told(records: int, seconds: float, lag: int) -> str:
    return f"{records:,} rows, {records / max(seconds, 1e-3):,.0f} rows/s, lag {lag:,}"
