"""Connections made again and again until a deadline: a broker that restarts is no reason to fail.

Owns the waiting between tries. What a connected client does about a lost connection is its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from millrace.config import ClientOptions
from millrace.errors import ConnectionFailed, MillraceError
from millrace_spark.options import ReadOptions
from millrace_spark.write_options import WriteOptions

PAUSE_MS_FIRST = 50
PAUSE_MS_MAX = 1_000
_REQUEST_TIMEOUT_MS_MAX = 30_000
_CONNECT_TIMEOUT_MS_MAX = 10_000


class _Startable(Protocol):
    def start(self) -> None: ...


C = TypeVar("C", bound=_Startable)


def started(make: Callable[[], C], *, deadline_ms: int) -> C:
    """A client that is connected; the caller closes it.

    Makes and starts one after another until one connects. Raises the last error when
    `deadline_ms` is over, and one that trying again cannot cure at once.
    """
    deadline = time.monotonic() + deadline_ms / 1000
    pause_ms = PAUSE_MS_FIRST
    while True:
        client = make()
        try:
            client.start()
        except MillraceError as error:
            if not error.retriable:
                raise
            if time.monotonic() + pause_ms / 1000 >= deadline:
                if isinstance(error, ConnectionFailed):
                    tried = f"{error}; tried again and again for deadlineMs={deadline_ms}"
                    raise ConnectionFailed(tried) from error
                raise
        else:
            return client
        time.sleep(pause_ms / 1000)
        pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)


def client_options(options: ReadOptions | WriteOptions) -> ClientOptions:
    """The settings of every client of a read or a write."""
    return {
        "client_id": "millrace-spark",
        "request_timeout_ms": min(options.deadline_ms, _REQUEST_TIMEOUT_MS_MAX),
        "connect_timeout_ms": min(options.deadline_ms, _CONNECT_TIMEOUT_MS_MAX),
    }
