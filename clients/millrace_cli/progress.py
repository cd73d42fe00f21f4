"""Progress of a run on stderr: a bar on a terminal, lines elsewhere.

Owns the display and the thread that polls. What is counted belongs to `millrace_spark.pipeline`.
Stdout has only the summary.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

from millrace.errors import MillraceError
from millrace_spark.pipeline.progress import Counts, NoProgress

POLL_S = 0.2
LINE_S = 5.0


class Display(Protocol):
    """Shows counts."""

    def show(self, counts: Counts) -> None:
        """Shows the current counts."""

    def close(self) -> None:
        """Ends the display, after success and after failure."""


class StderrProgress:
    """A `millrace_spark.pipeline.progress.Progress` that writes to stderr."""

    def message(self, line: str) -> None:
        """Writes the line; above the bar, if there is one."""
        print(line, file=sys.stderr, flush=True)

    def warning(self, line: str) -> None:
        """Writes the line."""
        _warn(line)

    @contextmanager
    def watching(
        self, action: str, poll: Callable[[], Counts], *, total: int | None
    ) -> Iterator[None]:
        """Shows the counts that `poll` returns until the block ends."""
        if total == 0:
            yield
            return
        is_terminal = sys.stderr.isatty()
        display: Display = _Bar(action, total) if is_terminal else _Lines(action, total)
        is_over = threading.Event()
        watcher = threading.Thread(
            target=_watch, args=(poll, display, is_over), name="progress", daemon=True
        )
        watcher.start()
        try:
            yield
        finally:
            is_over.set()
            watcher.join()


class StderrWarnings(NoProgress):
    """Writes warnings to stderr, and nothing else."""

    def warning(self, line: str) -> None:
        """Writes the line."""
        _warn(line)


def _warn(line: str) -> None:
    print(f"millrace: {line}", file=sys.stderr, flush=True)


def _watch(poll: Callable[[], Counts], display: Display, is_over: threading.Event) -> None:
    try:
        while True:
            # The last poll comes after the end, so that the bar is full.
            was_over = is_over.wait(POLL_S)
            display.show(poll())
            if was_over:
                return
    except (OSError, MillraceError):
        # Counts that cannot be read cannot be shown. The run itself reports its failure.
        return
    finally:
        display.close()


class _Bar:
    """A bar with rate and lag."""

    def __init__(self, action: str, total: int | None) -> None:
        self._total = total
        self._started = time.monotonic()
        self._progress = RichProgress(
            TextColumn(action),
            BarColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._bar = self._progress.add_task("", total=total, figures="")
        self._progress.start()

    def show(self, counts: Counts) -> None:
        total = self._total if counts.total is None else counts.total
        figures = _figures(counts, time.monotonic() - self._started, total)
        self._progress.update(self._bar, completed=counts.offsets, total=total, figures=figures)

    def close(self) -> None:
        self._progress.stop()


class _Lines:
    """A line every `LINE_S` seconds, if the counts have changed."""

    def __init__(self, action: str, total: int | None) -> None:
        self._action = action
        self._total = total
        self._started = self._last_line = time.monotonic()
        self._counts: Counts | None = None

    def show(self, counts: Counts) -> None:
        now = time.monotonic()
        if now - self._last_line >= LINE_S and counts != self._counts:
            self._last_line = now
            self._counts = counts
            total = self._total if counts.total is None else counts.total
            figures = _figures(counts, now - self._started, total)
            print(f"{self._action}: {figures}", file=sys.stderr, flush=True)

    def close(self) -> None:
        pass


def _figures(counts: Counts, seconds: float, total: int | None) -> str:
    if not counts.records and not counts.offsets:
        return "waiting for the first rows"
    rate = counts.records / max(seconds, 1e-3)
    figures = f"{counts.records:,} rows, {rate:,.0f} rows/s"
    if counts.corrupt:
        figures += f", {counts.corrupt:,} corrupt"
    return figures if total is None else f"{figures}, lag {total - counts.offsets:,}"
