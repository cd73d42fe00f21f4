"""The phases of a connection.

OPEN -----> FINISHING -----> LINGERING -----> CLOSED
requests    responses are    our side ended,   lost or aborted,
are taken   still sent       input discarded   from any phase
"""

from __future__ import annotations

import enum


class Phase(enum.Enum):
    """Where a connection is in its life; the module draws their order."""

    OPEN = enum.auto()
    FINISHING = enum.auto()
    LINGERING = enum.auto()
    CLOSED = enum.auto()


OPEN, FINISHING, LINGERING, CLOSED = Phase
"""A request looks at them ten times. On Python 3.11, to read a member from its class takes three
times as long."""
