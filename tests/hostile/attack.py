"""An attack, and its two permitted outcomes: a typed error or a closed connection.

Owns the list of attacks, which the modules named for what they attack fill.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from millrace_protocol.api import ApiKey
from millrace_protocol.errors import ErrorCode
from tests.broker.wire import Wire
from tests.hostile.target import Target

Run = Callable[[Target], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Attack:
    """One hostile input. `run` fails when it is answered wrongly, and says how it was answered.

    `needs_short_limits`: it ends by a time limit, so its broker should have short ones.
    """

    name: str
    run: Run
    needs_short_limits: bool


ATTACKS: list[Attack] = []


def hostile(run: Run) -> Run:
    """Adds an attack, named for its function."""
    ATTACKS.append(Attack(_name(run), run, needs_short_limits=False))
    return run


def hostile_by_waiting(run: Run) -> Run:
    """The same for one that a time limit ends."""
    ATTACKS.append(Attack(_name(run), run, needs_short_limits=True))
    return run


async def refused(wire: Wire, *codes: ErrorCode) -> str:
    """The next answer is a refusal with one of these codes."""
    code, refusal = await wire.refusal()
    assert code in codes, (code, refusal.message)
    assert refusal.message
    return f"refused {code.name}"


async def refused_body(
    wire: Wire, api: ApiKey, body: bytes, code: ErrorCode = ErrorCode.INVALID_REQUEST
) -> str:
    """A body is refused, and the connection lives on."""
    wire.send_body(api, body)
    outcome = await refused(wire, code)
    await lives(wire)
    return outcome


async def closed(wire: Wire) -> str:
    """The broker closes without another word."""
    assert await wire.closed() == b""
    return "closed"


async def lives(wire: Wire) -> None:
    """The connection is still answered."""
    assert (await wire.topic("good")).error_code == 0


def _name(run: Run) -> str:
    return getattr(run, "__name__", repr(run)).replace("_", " ")
