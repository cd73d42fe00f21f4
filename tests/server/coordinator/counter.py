"""A small coordinator beside that of groups: counters, and requests that wait for a count.

Its topic has a record for each change of a counter. It keeps the rules of `CoordinatorShard` with
no code of groups.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from millrace_server.api_error import ApiError
from millrace_server.coordinator.pending_appends import PendingAppends
from millrace_server.coordinator.shard import (
    Effects,
    Moment,
    RecordSerde,
    Token,
    UnknownRecord,
    UnreadableRecord,
)
from millrace_server.loop.deadlines import Deadlines


class Counted(NamedTuple):
    """A counter has a new value."""

    name: str
    value: int


class _Wait(NamedTuple):
    name: str
    at_least: int
    token: Token


CounterEffects = Effects[Counted, int]


class CounterShard:
    """Counters of one partition. A result is a counter's durable value."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.is_loaded = False
        self.is_unloaded = False
        self._appends = PendingAppends[Counted, int](lambda record: record.name)
        self._waits = Deadlines[_Wait]()
        self._waiting: list[_Wait] = []

    def replay(self, record: Counted) -> None:
        self.counts[record.name] = record.value

    def on_loaded(self, moment: Moment) -> CounterEffects:
        self.is_loaded = True
        return Effects(moment)

    def on_unloaded(self) -> None:
        self.is_unloaded = True
        self._appends.clear()

    def add(self, name: str, token: Token, moment: Moment, *, times: int = 1) -> CounterEffects:
        """Counts on; the reply follows when that is durable."""
        effects: CounterEffects = Effects(moment)
        pending = [record.value for record in self._appends.records_of(name)]
        value = pending[-1] if pending else self.counts.get(name, 0)
        records = [Counted(name, value + each) for each in range(1, times + 1)]
        self._appends.start(effects, records, partial(self._on_added, value + times, token))
        return effects

    def wait(
        self, name: str, at_least: int, timeout_ms: int, token: Token, moment: Moment
    ) -> CounterEffects:
        """The reply follows when the counter has come to `at_least`, or the time has passed."""
        wait = _Wait(name, at_least, token)
        self._waiting.append(wait)
        self._waits.set(wait, moment.now_ms + timeout_ms)
        return Effects(moment)

    def on_appended(self, append_id: int, moment: Moment) -> CounterEffects:
        effects: CounterEffects = Effects(moment)
        ended = self._appends.end(append_id, durable=True)
        for record in ended.records:
            self.replay(record)
        if ended.on_ended is not None:
            ended.on_ended(None, effects)
        for wait in [w for w in self._waiting if self.counts.get(w.name, 0) >= w.at_least]:
            self._end_wait(wait, effects)
        return effects

    def on_append_failed(self, append_id: int, error: ApiError, moment: Moment) -> CounterEffects:
        effects: CounterEffects = Effects(moment)
        ended = self._appends.end(append_id, durable=False)
        if ended.on_ended is not None:
            ended.on_ended(error, effects)
        return effects

    def deadline_ms(self) -> int | None:
        return self._waits.next_due_ms()

    def on_deadline(self, moment: Moment) -> CounterEffects:
        effects: CounterEffects = Effects(moment)
        for wait in self._waits.pop_due(moment.now_ms):
            self._end_wait(wait, effects)
        return effects

    def _end_wait(self, wait: _Wait, effects: CounterEffects) -> None:
        self._waits.cancel(wait)
        self._waiting.remove(wait)
        effects.reply(wait.token, self.counts.get(wait.name, 0))

    def _on_added(
        self, value: int, token: Token, error: ApiError | None, effects: CounterEffects
    ) -> None:
        effects.reply(token, value if error is None else error)


def _encode(record: Counted) -> tuple[bytes, bytes | None]:
    return record.name.encode(), b"%d" % record.value


def _decode(key: bytes | None, value: bytes | None) -> Counted | UnknownRecord:
    if key is None or value is None:
        return UnknownRecord("it has no key or no value")
    if not value.isdigit():
        raise UnreadableRecord(f"the count {value!r} is no number")
    return Counted(key.decode(), int(value))


COUNTER_SERDE = RecordSerde(_encode, _decode)
