"""Progress of a run: the counts that the pipeline gives to the program that called it.

Owns the counts and the interface. The program decides whether to show them; the command line does
(`millrace_cli.progress`). The counts of an import ask nothing of Spark: finished ranges are marked
in the directory wherever their tasks ran, so the counts are the same on one machine, on a cluster
and with Spark Connect.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Protocol

from millrace_spark.pipeline.directory import ImportDirectory
from millrace_spark.pipeline.ledger import ImportBatch
from millrace_spark.pipeline.range_task import RangeResult


class Counts(NamedTuple):
    """The work that is done."""

    records: int
    offsets: int = 0
    """Of the total."""
    corrupt: int = 0
    """Of the records."""
    total: int | None = None
    """The offsets of the run, where they change during it."""


class Progress(Protocol):
    """Receives the progress of a run."""

    def message(self, line: str) -> None:
        """Receives one line about the run."""

    def warning(self, line: str) -> None:
        """Receives one line about what is not as it should be."""

    def watching(
        self, action: str, poll: Callable[[], Counts], *, total: int | None
    ) -> AbstractContextManager[None]:
        """Calls `poll` from any thread until the block ends; `total` in offsets, None if unknown.

        `poll` raises `OSError` and `MillraceError`. Such an error must not end the run.
        """


class NoProgress:
    """Ignores the progress of a run."""

    def message(self, line: str) -> None:
        """Ignores the line."""

    def warning(self, line: str) -> None:
        """Ignores the line."""

    def watching(
        self, action: str, poll: Callable[[], Counts], *, total: int | None
    ) -> AbstractContextManager[None]:
        """Never calls `poll`."""
        return nullcontext()


def import_counts(directory: ImportDirectory, batch: ImportBatch) -> Callable[[], Counts]:
    """A function that counts the finished ranges of `batch` and their records."""
    done: dict[int, RangeResult] = {}

    def poll() -> Counts:
        for index, text in directory.markers(batch.number, known=done).items():
            result = RangeResult.decode(text)
            if result is not None:
                done[index] = result
        offsets = sum(len(batch.ranges[index]) for index in done)
        return Counts(
            sum(each.records for each in done.values()),
            offsets,
            sum(each.corrupt.records for each in done.values()),
        )

    return poll
