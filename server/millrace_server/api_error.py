"""Expected refusals: what a service answers when it will not do what was asked."""

from __future__ import annotations

from millrace_protocol.errors import ERROR_TRAITS, ErrorCode

MESSAGE_SIZE_MAX = 1_000
"""Characters. Sentences name what the peer sent, which may be as long as a string can be."""
QUOTED_LENGTH = 256
"""Characters of a name in a message; `repr` of one of 8,000 takes 25 us."""


class ApiError(Exception):
    """The request, or one partition or topic of it, is refused.

    `code` is the wire's error code (wire_spec.md W-7.1), `message` says what was wrong and what
    to do. A dialect turns it into its own words; nothing was changed when it is raised.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code = code
        message = message or ERROR_TRAITS[code].message
        if len(message) > MESSAGE_SIZE_MAX:
            half = MESSAGE_SIZE_MAX // 2 - 3
            message = f"{message[:half]} ... {message[-half:]}"
        self.message = message
        super().__init__(f"{code.name}: {self.message}")


def quoted(name: str) -> str:
    """A name in a message; of one that is too long for a name, the beginning."""
    if len(name) <= QUOTED_LENGTH:
        return repr(name)
    return f"{name[:QUOTED_LENGTH]!r}... ({len(name)} characters)"
