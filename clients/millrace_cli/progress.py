"""Progress of a run of the Spark pipeline, and of a query, on stderr.

Owns the words. What is counted belongs to `millrace_spark.pipeline`, and the display to
`progress_display`. Stdout has only the summary.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from millrace_cli.progress_display import Shown, displayed
from millrace_spark.pipeline.progress import Counts, NoProgress


class StderrProgress:
    """A `millrace_spark.pipeline.progress.Progress` that writes to stderr."""

    def message(self, line: str) -> None:
        """Writes the line; above the bar, if there is one."""
        print(line, file=sys.stderr, flush=True)

    def warning(self, line: str) -> None:
        """Writes the line."""
        _warn(line)

    def watching(
        self, action: str, poll: Callable[[], Counts], *, total: int | None
    ) -> AbstractContextManager[None]:
        """Shows the counts that `poll` returns until the block ends."""
        if total == 0:
            return nullcontext()

        def shown(seconds: float) -> Shown:
            counts = poll()
            offsets = total if counts.total is None else counts.total
            return Shown(counts, _figures(counts, seconds, offsets), counts.offsets, offsets)

        return displayed(action, shown, total=total)


class StderrWarnings(NoProgress):
    """Writes warnings to stderr, and nothing else."""

    def warning(self, line: str) -> None:
        """Writes the line."""
        _warn(line)


def _warn(line: str) -> None:
    print(f"millrace: {line}", file=sys.stderr, flush=True)


def _figures(counts: Counts, seconds: float, total: int | None) -> str:
    if not counts.records and not counts.offsets:
        return "waiting for the first rows"
    rate = counts.records / max(seconds, 1e-3)
    figures = f"{counts.records:,} rows, {rate:,.0f} rows/s"
    if counts.corrupt:
        figures += f", {counts.corrupt:,} corrupt"
    return figures if total is None else f"{figures}, lag {total - counts.offsets:,}"
