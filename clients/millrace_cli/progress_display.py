"""A display of progress on stderr: a bar on a terminal, lines elsewhere.

Owns the display and the thread that polls. What is counted, and the words for it, are the caller's.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from millrace.errors import MillraceError

POLL_S = 0.2
LINE_S = 5.0


class Shown(NamedTuple):
    """What a display shows."""

    counts: tuple[int | None, ...]
    """What was counted. A line is printed only if it has changed."""
    figures: str
    completed: int
    total: int | None
    """Of the same unit as `completed`; None if unknown."""


class Display(Protocol):
    """Shows progress."""

    def show(self, shown: Shown) -> None:
        """Shows the current progress."""

    def close(self) -> None:
        """Ends the display, after success and after failure."""


@contextmanager
def displayed(
    action: str, poll: Callable[[float], Shown], *, total: int | None = None
) -> Iterator[None]:
    """Shows what `poll` returns until the block ends.

    A thread calls `poll` with the seconds since the start. Its `OSError` and `MillraceError` end
    the display, not the block.
    """
    display: Display = _Bar(action, total) if sys.stderr.isatty() else _Lines(action)
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


def _watch(poll: Callable[[float], Shown], display: Display, is_over: threading.Event) -> None:
    started = time.monotonic()
    try:
        while True:
            # The last poll comes after the end, so that the bar is full.
            was_over = is_over.wait(POLL_S)
            display.show(poll(time.monotonic() - started))
            if was_over:
                return
    except (OSError, MillraceError):
        # Counts that cannot be read cannot be shown. The run itself reports its failure.
        return
    finally:
        display.close()


class _Bar:
    """A bar with figures."""

    def __init__(self, action: str, total: int | None) -> None:
        self._progress = Progress(
            TextColumn(action),
            BarColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._bar = self._progress.add_task("", total=total, figures="")
        self._progress.start()

    def show(self, shown: Shown) -> None:
        self._progress.update(
            self._bar, completed=shown.completed, total=shown.total, figures=shown.figures
        )

    def close(self) -> None:
        self._progress.stop()


class _Lines:
    """A line every `LINE_S` seconds, if the counts have changed."""

    def __init__(self, action: str) -> None:
        self._action = action
        self._last_line = time.monotonic()
        self._counts: tuple[int | None, ...] | None = None

    def show(self, shown: Shown) -> None:
        now = time.monotonic()
        if now - self._last_line >= LINE_S and shown.counts != self._counts:
            self._last_line = now
            self._counts = shown.counts
            print(f"{self._action}: {shown.figures}", file=sys.stderr, flush=True)

    def close(self) -> None:
        pass
