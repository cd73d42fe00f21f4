"""An exchange of messages between a client and a mechanism.

open ──► step(message) ──► Challenge: the client answers ──► step ...
                      ├──► Accepted: the client is this user
                      └──► SaslFailed: the connection ends
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

MESSAGE_BYTES_MAX = 16 << 10
"""Longest message of a client: a token of OAuth has some kilobytes, the others are shorter."""


class SaslFailed(Exception):
    """The client has not proved who it is. The text tells no more than it may know.

    `user` is whom it claimed to be and `detail` what it may not know, for the broker's own log.
    """

    def __init__(self, reason: str, *, user: str = "", detail: str = "") -> None:
        super().__init__(reason)
        self.user = user
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Challenge:
    """The exchange goes on after this message to the client."""

    message: bytes


@dataclass(frozen=True, slots=True)
class Accepted:
    """The client is `user`. `message` is the last one to it.

    `expires_ms` is the wall-clock time until which that is proved; None for always.
    """

    user: str
    message: bytes = b""
    expires_ms: int | None = None


Step = Challenge | Accepted
Work = Callable[[], Step]
"""A step that takes milliseconds: it runs in a worker thread. It raises `SaslFailed`."""
Waiting = Coroutine[Any, Any, Step]
"""A step that waits for something."""


class Exchange(Protocol):
    """One authentication of one client."""

    mechanism: str

    def step(self, message: bytes) -> Step | Work | Waiting:
        """Takes the next message of the client. Raises `SaslFailed`, also after the end."""


def invalid_credentials(mechanism: str, user: str) -> SaslFailed:
    """The one failure for a wrong password and for a user that there is not."""
    return SaslFailed(
        f"Authentication failed with SASL mechanism {mechanism}: the user or the password is wrong",
        user=user,
    )
