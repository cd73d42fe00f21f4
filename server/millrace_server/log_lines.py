"""Structured logs: how the broker's log lines look and where they go.

Lines go to stderr, so that stdout stays for what a program reads (the address listened on).
"""

from __future__ import annotations

import logging
import sys

import structlog


def configure(*, level: str, style: str) -> None:
    """Sets up structlog for this process.

    `level` is debug, info, warning or error; `style` is json, console, or auto: console on a
    terminal, else json.
    """
    if style == "auto":
        style = "console" if sys.stderr.isatty() else "json"
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
        if style == "console"
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
