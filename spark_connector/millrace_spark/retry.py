"""Retries until a deadline, so that a broker that restarts does not fail a query.

Owns the pauses between attempts. A connected client handles a lost connection itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from millrace.config import ClientOptions
from millrace.errors import ConnectionFailed, ForeignPort, MillraceError
from millrace.sync import Admin
from millrace_spark.options.credentials import Credentials

PAUSE_MS_FIRST = 50
PAUSE_MS_MAX = 1_000
_REQUEST_TIMEOUT_MS_MAX = 30_000
_CONNECT_TIMEOUT_MS_MAX = 10_000

T = TypeVar("T")


class _Startable(Protocol):
    def start(self) -> None: ...


C = TypeVar("C", bound=_Startable)


def with_retry(attempt: Callable[[], T], *, deadline_ms: int) -> T:
    """The result of the first attempt that succeeds.

    Raises the error of the last attempt at the deadline, and at once an error that is not
    retriable, or of a port that is no broker's. The pauses double from `PAUSE_MS_FIRST` to
    `PAUSE_MS_MAX`.
    """
    deadline = time.monotonic() + deadline_ms / 1000
    pause_ms = PAUSE_MS_FIRST
    while True:
        try:
            return attempt()
        except MillraceError as error:
            is_final = not error.retriable or isinstance(error, ForeignPort)
            if is_final or time.monotonic() + pause_ms / 1000 >= deadline:
                raise
        time.sleep(pause_ms / 1000)
        pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)


def start_with_retry(make: Callable[[], C], *, deadline_ms: int) -> C:
    """A client that is connected; the caller closes it. Each attempt starts a new client.

    Raises what `with_retry` does.
    """

    def attempt() -> C:
        client = make()
        client.start()
        return client

    try:
        return with_retry(attempt, deadline_ms=deadline_ms)
    except ConnectionFailed as error:
        if not error.retriable or isinstance(error, ForeignPort):
            raise
        message = f"{error}; tried again until deadlineMs={deadline_ms}"
        raise ConnectionFailed(message) from error


def start_admin(
    servers: str,
    credentials: Credentials,
    *,
    deadline_ms: int,
    request_timeout_ms: int = _REQUEST_TIMEOUT_MS_MAX,
) -> Admin:
    """An `Admin` that is connected; the caller closes it. A request takes `request_timeout_ms` at
    most, and less under a shorter deadline.

    Raises what `start_with_retry` does.
    """
    settings = client_options(deadline_ms, credentials)
    settings["request_timeout_ms"] = min(settings["request_timeout_ms"], request_timeout_ms)
    return start_with_retry(lambda: Admin(servers, **settings), deadline_ms=deadline_ms)


def client_options(deadline_ms: int, credentials: Credentials) -> ClientOptions:
    """The settings of every client of a read or a write."""
    return {
        **credentials.client_options(),
        "client_id": "millrace-spark",
        "request_timeout_ms": min(deadline_ms, _REQUEST_TIMEOUT_MS_MAX),
        "connect_timeout_ms": min(deadline_ms, _CONNECT_TIMEOUT_MS_MAX),
    }
