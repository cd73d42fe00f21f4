"""How far something is, for who waits: a bar on a terminal, lines elsewhere, both on stderr.

Owns the looking, which asks nothing of Spark: ranges that are done are marked in the directory,
wherever their tasks run, so it works alike on a laptop, a cluster and Spark Connect. Stdout is the
summary's.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from millrace.errors import MillraceError
from millrace_spark.pipeline.directory import LandingDirectory
from millrace_spark.pipeline.landing_task import Landed
from millrace_spark.pipeline.ledger import Landing

LOOK_S = 0.2
LINE_S = 5.0


class Seen(NamedTuple):
    """How far something is."""

    records: int
    offsets: int = 0
    """Of the total."""


class Display(Protocol):
    """What shows how far something is."""

    def show(self, seen: Seen) -> None:
        """So far."""

    def close(self) -> None:
        """It is over, one way or the other."""


class Progress:
    """Shows what takes long while it runs, or with `is_quiet` nothing."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        self._is_quiet = is_quiet

    def say(self, line: str) -> None:
        """One line for who watches."""
        if not self._is_quiet:
            print(line, file=sys.stderr, flush=True)

    @contextmanager
    def watching_landing(self, directory: LandingDirectory, landing: Landing) -> Iterator[None]:
        """Shows how far `landing` is until the block is left."""
        done: dict[int, Landed] = {}

        def look() -> Seen:
            for index, text in directory.marks(landing.number, known=done).items():
                landed = Landed.decode(text)
                if landed is not None:
                    done[index] = landed
            offsets = sum(len(landing.ranges[index]) for index in done)
            return Seen(sum(each.records for each in done.values()), offsets)

        with self.watching("importing", look, total=len(landing)):
            yield

    @contextmanager
    def watching(self, what: str, look: Callable[[], Seen], *, total: int | None) -> Iterator[None]:
        """Shows what `look` sees until the block is left; `total` in offsets, if it is known."""
        if self._is_quiet or total == 0:
            yield
            return
        is_terminal = sys.stderr.isatty()
        display: Display = _Bar(what, total) if is_terminal else _Lines(what, total)
        is_over = threading.Event()
        watcher = threading.Thread(
            target=_watch, args=(look, display, is_over), name="progress", daemon=True
        )
        watcher.start()
        try:
            yield
        finally:
            is_over.set()
            watcher.join()


def _watch(look: Callable[[], Seen], display: Display, is_over: threading.Event) -> None:
    try:
        while True:
            # The last look comes after the end, so that the bar is full.
            was_over = is_over.wait(LOOK_S)
            display.show(look())
            if was_over:
                return
    except (OSError, MillraceError):
        # What cannot be looked at cannot be shown; that it failed is the work's to say.
        return
    finally:
        display.close()


class _Bar:
    """A bar with rate and lag."""

    def __init__(self, what: str, total: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        self._total = total
        self._started = time.monotonic()
        self._progress = RichProgress(
            TextColumn(what),
            BarColumn(),
            TextColumn("{task.fields[told]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._bar = self._progress.add_task("", total=total, told="")
        self._progress.start()

    def show(self, seen: Seen) -> None:
        told = _told(seen, time.monotonic() - self._started, self._total)
        self._progress.update(self._bar, completed=seen.offsets, told=told)

    def close(self) -> None:
        self._progress.stop()


class _Lines:
    """A line now and then, if there is news."""

    def __init__(self, what: str, total: int | None) -> None:
        self._what = what
        self._total = total
        self._started = self._told = time.monotonic()
        self._seen: Seen | None = None

    def show(self, seen: Seen) -> None:
        now = time.monotonic()
        if now - self._told >= LINE_S and seen != self._seen:
            self._told = now
            self._seen = seen
            told = _told(seen, now - self._started, self._total)
            print(f"{self._what}: {told}", file=sys.stderr, flush=True)

    def close(self) -> None:
        pass


def _told(seen: Seen, seconds: float, total: int | None) -> str:
    if not seen.records and not seen.offsets:
        return "waiting for Spark's first tasks"
    rate = seen.records / max(seconds, 1e-3)
    told = f"{seen.records:,} rows, {rate:,.0f} rows/s"
    return told if total is None else f"{told}, lag {total - seen.offsets:,}"
