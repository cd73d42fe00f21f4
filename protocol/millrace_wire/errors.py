"""Why a request has no response.

Owns one class for each case that a caller can tell apart. A `ConnectionFault` ends the connection
and fails every request on it; any other error concerns one request. The clients and the broker
turn these into errors of their own.
"""

from __future__ import annotations

from typing import TypeVar

F = TypeVar("F", bound="ConnectionFault")


class RequestFailed(Exception):
    """Root of all errors of this package's connections."""


class RequestRefused(RequestFailed):
    """The peer refused the whole request (W-2.4); the connection lives on.

    `error_code` is the wire's, and may be one that this side does not know. The versions are -1
    where the version of the request is not the reason.
    """

    def __init__(
        self, message: str, *, error_code: int, min_version: int, max_version: int
    ) -> None:
        super().__init__(message)
        self.error_code = error_code
        self.min_version = min_version
        self.max_version = max_version


class RequestTooLarge(RequestFailed):
    """The request is longer than the peer accepts. It was not sent."""


class VersionUnsupported(RequestFailed):
    """The two sides have no version of the api in common. The request was not sent."""


class TooManyRequests(RequestFailed):
    """As many requests wait to be sent as may wait. This one was not sent."""


class NotSentInTime(RequestFailed):
    """The request waited to be sent until its deadline. It has no effect."""


class ConnectionFault(RequestFailed):
    """The connection has ended, or there was none."""


class ConnectFailed(ConnectionFault):
    """No connection could be made."""


class ConnectionLost(ConnectionFault):
    """The connection ended before the response came; the request may have taken effect."""


class ConnectionClosed(ConnectionFault):
    """This side closed the connection; the request may have taken effect."""


class RequestTimedOut(ConnectionFault):
    """A response did not come in time; the request may have taken effect."""


class ProtocolViolation(ConnectionFault):
    """The peer sent bytes that the protocol does not allow."""


class FrameTooLong(ProtocolViolation):
    """The peer speaks the protocol, and sent a longer frame than this side takes."""


def copy_of(fault: F) -> F:
    """The fault as a new exception, without a traceback.

    An exception that is raised twice collects both tracebacks, and one that is kept with its
    traceback keeps the frames of the connection that keeps it.
    """
    return type(fault)(*fault.args)
