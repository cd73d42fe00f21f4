"""A wait for brokers that do not answer: a line after some seconds, an end after a set time.

Owns the times and the sentences on stderr. What counts as silence is the caller's: a producer knows
the age of its oldest record, a consumer the last response of a broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from millrace.config import ClientConfig
from millrace.events import State
from millrace_cli.exits import BrokerUnavailable, tell

if TYPE_CHECKING:
    from millrace.consumer import Consumer
    from millrace.errors import MillraceError
    from millrace.events import ConsumerHealth
    from millrace_cli.record_output import RecordOutput

POLL_S = 0.25
SAY_AFTER_S = 3.0
SAY_JOINING_AFTER_S = 10.0
ERROR_S = 15.0
"""How long an error explains a wait. A consumer tries again sooner, as a rule."""
CONNECT_S = ClientConfig().connect_timeout_ms / 1000
"""How long a client waits at its start for each address; a longer limit is not told there."""


class Silence(NamedTuple):
    """How long no broker has done what is waited for, and a sentence about it."""

    seconds: float
    sentence: str
    is_joining: bool = False
    """The wait is for other members of a group, whose time the group bounds."""
    is_starting: bool = False
    """No broker has answered yet: the client gives an address up after `connect_timeout_ms`."""


@asynccontextmanager
async def watching(
    silence: Callable[[], Silence], *, timeout_s: float, ends: bool = True
) -> AsyncIterator[None]:
    """Watches while the block runs. Raises `BrokerUnavailable` in it after `timeout_s`.

    Without `ends` it only says what is waited for, once the client has started: the block has a
    timeout of its own.
    """
    task = asyncio.current_task()
    assert task is not None
    reasons: list[str] = []

    async def watch() -> None:
        reasons.append(await _silent(silence, timeout_s, ends=ends))
        task.cancel()

    watcher = asyncio.create_task(watch(), name="broker-watch")
    try:
        yield
    except asyncio.CancelledError:
        if not reasons:
            raise
        task.uncancel()
        raise BrokerUnavailable(reasons[0]) from None
    finally:
        watcher.cancel()


async def _silent(silence: Callable[[], Silence], timeout_s: float, *, ends: bool) -> str:
    """Returns the reason when the silence has lasted for `timeout_s`."""
    was_silent = False
    while True:
        await asyncio.sleep(POLL_S)
        now = silence()
        may_end = not now.is_joining and (ends or now.is_starting)
        if was_silent and may_end and now.seconds >= timeout_s:
            return f"{now.sentence}; gave up after {timeout_s:g} s"
        after_s = SAY_JOINING_AFTER_S if now.is_joining else min(SAY_AFTER_S, timeout_s)
        is_silent = now.seconds >= after_s
        if is_silent and not was_silent:
            is_limit = not now.is_joining and not (now.is_starting and timeout_s > CONNECT_S)
            limit = f"; waiting up to {timeout_s:g} s" if is_limit else ""
            tell(f"{now.sentence}{limit}")
        elif was_silent and not is_silent:
            tell("the wait is over")
        was_silent = is_silent


class ConsumerSilence:
    """The silence of the brokers of a consumer. The time of writing its output does not count."""

    def __init__(
        self,
        consumer: Consumer[bytes, bytes],
        output: RecordOutput | None = None,
        *,
        servers: str,
    ) -> None:
        self._consumer = consumer
        self._output = output
        self._servers = servers
        self._clock = asyncio.get_running_loop().time
        self._since = self._clock()
        self._error: MillraceError | None = None
        self._error_at = self._since

    def __call__(self) -> Silence:
        now = self._clock()
        health = self._consumer.health()
        unread = {*self._consumer.assignment()} - {*self._consumer.paused()}
        failing = [health.waiting[where] for where in unread if where in health.waiting]
        if self._output is not None and self._output.is_writing:
            self._since = now
        # A broker that refuses every partition answers, and the wait goes on nevertheless.
        elif not failing or len(failing) < len(unread):
            self._since = max(self._since, now - _last_answer_ms(health) / 1000)
        error = failing[0] if failing else self._current_error(health, now)
        member = health.group if health.state is State.RUNNING and error is None else None
        if member is not None and member.state != "stable":
            sentence = f"waiting for the other members of group {member.group} to join again"
            return Silence(now - self._since, sentence, is_joining=True)
        sentence = str(error or f"no broker of {self._servers} answers")
        return Silence(now - self._since, sentence, is_starting=health.state is State.NEW)

    def _current_error(self, health: ConsumerHealth, now: float) -> MillraceError | None:
        """The last error, if the consumer still meets it: each time it is a new object."""
        if health.last_error is not self._error:
            self._error, self._error_at = health.last_error, now
        return self._error if now - self._error_at < ERROR_S else None


def _last_answer_ms(health: ConsumerHealth) -> float:
    """How long ago a broker last answered a fetch or a heartbeat."""
    heartbeat_ms = None if health.group is None else health.group.last_heartbeat_ms
    return min((ms for ms in (health.last_fetch_ms, heartbeat_ms) if ms is not None), default=inf)
