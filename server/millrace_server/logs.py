"""Structured log lines: an event and its fields.

They go through the standard library's `logging`, below the logger `millrace`, so that a program
that embeds a broker has them where it has its own, and is silent by default below WARNING. A
broker process (`configure`) writes them to stderr, as JSON or for people.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Protocol

import structlog
from structlog.typing import EventDict, WrappedLogger


class MonotonicClock(Protocol):
    """Tells how much time has passed."""

    def monotonic_ms(self) -> int: ...


FAILURE_LINE_MS = 60_000
"""A failure that repeats, as that of a full disk, is logged once in this time."""


class LogRateLimiter:
    """How many lines may be logged about what peers do: `lines` in every `period_ms`.

    A peer that is refused can come again as often as it likes, and the log must not grow with it.
    """

    def __init__(self, clock: MonotonicClock, *, lines: int = 20, period_ms: int = 10_000) -> None:
        self._clock = clock
        self._lines = lines
        self._period_ms = period_ms
        self._began_ms = clock.monotonic_ms()
        self._asked = 0
        self._suppressed = 0

    def take(self) -> int | None:
        """None when a line must not be written; else how many were not since the last one."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._began_ms >= self._period_ms:
            self._began_ms, self._asked = now_ms, 0
        self._asked += 1
        if self._asked > self._lines:
            self._suppressed += 1
            return None
        suppressed, self._suppressed = self._suppressed, 0
        return suppressed


class _Line(dict[str, Any]):
    """An event and its fields; as text for handlers that know nothing of fields."""

    def __str__(self) -> str:
        fields = (f" {name}={value}" for name, value in self.items() if name != "event")
        return f"{self['event']}{''.join(fields)}"


def _to_logging(
    logger: WrappedLogger, method: str, event: EventDict
) -> tuple[tuple[_Line], dict[str, Any]]:
    keywords: dict[str, Any] = {"extra": {"_logger": logger, "_name": method}}
    if (exc_info := event.pop("exc_info", None)) is not None:
        keywords["exc_info"] = exc_info
    return (_Line(event),), keywords


def _with_exception(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Moves the exception from logging's record, a copy, to the event that is written."""
    record = event["_record"]
    if record.exc_info:
        event["exc_info"] = record.exc_info
        record.exc_info = record.exc_text = None
    return event


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """The logger of that name, for example `millrace.broker`."""
    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[structlog.stdlib.filter_by_level, _to_logging],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return logger


def configure(*, level: str, style: str) -> None:
    """Writes this process's log lines to stderr; stdout stays for what a program reads.

    `level` is debug, info, warning or error; `style` is json, console, or auto: console on a
    terminal, else json.
    """
    terminal = sys.stderr.isatty()
    # A traceback with the values of variables, rich's, would show what is in records.
    last: list[Any] = (
        [
            structlog.dev.ConsoleRenderer(
                colors=terminal, exception_formatter=structlog.dev.plain_traceback
            )
        ]
        if style == "console" or (style == "auto" and terminal)
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            # Else structlog drops it from lines that came by way of `_to_logging`.
            keep_exc_info=True,
            processors=[
                *shared,
                _with_exception,
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *last,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
