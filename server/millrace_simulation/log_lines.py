"""Log lines of simulated processes, as lines of the trace."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from millrace_simulation.broker import is_disk_error
from millrace_simulation.loop import CURRENT
from millrace_simulation.trace import Trace


class LogLines(logging.Handler):
    """Notes each line. An error that is not of a simulated disk is a bug of millrace."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = (
            record.msg if isinstance(record.msg, dict) else {"event": record.getMessage()}
        )
        process = CURRENT.get()
        self.trace.note(f"{process.name if process else '-'} logs {fields}")
        self.judge(process.machine if process else "", fields, record)

    def judge(self, machine: str, fields: dict[str, Any], record: logging.LogRecord) -> None:
        """Says what a line means for the run."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not is_disk_error(str(error)):
            self.trace.violation(f"{machine} logs {fields}: {error!r}")


@contextmanager
def handled(handler: logging.Handler) -> Iterator[None]:
    """While it lasts, all lines of millrace go to the handler, and nowhere else."""
    logger = logging.getLogger("millrace")
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


@contextmanager
def log_lines(trace: Trace) -> Iterator[None]:
    """While it lasts, log lines of millrace go to the trace."""
    with handled(LogLines(trace)):
        yield
