"""The same short lives on a disk of which one operation fails, for every one of them.

EIO or ENOSPC; a write that fails has written half. Whatever was acked has to be there afterwards,
after a kill and in states that a power cut may leave, and nothing that is refused may break a
later start.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

from millrace_server.api_error import ApiError
from millrace_server.log import CorruptLog, LogConfig, LogFailed, PartitionLog
from millrace_server.metadata.records import UnreadableMetadata
from tests.crash import broker_life, log_states
from tests.crash.broker_life import BrokerLife, check_broker
from tests.crash.durable_states import MomentDisk, Tally, states
from tests.crash.log_states import LogLife, check_recovered
from tests.server.log.log_model import DIRECTORY

FAULTS = (errno.EIO, errno.ENOSPC)
STATES_PER_FAILURE = 6


class FailingLogLife(LogLife):
    """A life that goes on after what is refused, as a broker does.

    Invariant: after an error of a sync, or EIO of a write, the log has failed and stays so.
    """

    def __init__(self, disk: MomentDisk, config: LogConfig) -> None:
        self.refused = 0
        super().__init__(disk, config)

    def append(self, *sizes: int) -> None:
        for size in sizes:
            had_failed = self.log.is_failed
            try:
                super().append(size)
                assert not had_failed, "a log that has failed took an append"
            except (OSError, LogFailed):
                self.sent.pop()
                self.epochs.pop()
                self.refused += 1

    def follow(self, missing: int, size: int) -> None:
        had_failed, sent = self.log.is_failed, len(self.sent)
        try:
            super().follow(missing, size)
            assert not had_failed, "a log that has failed took an append"
        except (OSError, LogFailed):
            del self.sent[sent:], self.epochs[sent:]
            self.refused += 1

    def advance_start(self, offset: int) -> None:
        if not self.log.is_failed:
            super().advance_start(offset)

    def flush(self, *, checkpoint: bool = False) -> None:
        self._try(lambda: super(FailingLogLife, self).flush(checkpoint=checkpoint))

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except OSError as error:
            self.refused += 1
            # The broker's flusher does this with every error of a flush.
            self.log.fail(error)
        except LogFailed:
            self.refused += 1

    def truncate(self, offset: int) -> None:
        if self.log.is_failed:
            return
        try:
            super().truncate(min(offset, len(self.sent)))
        except (OSError, LogFailed):
            self.refused += 1

    def retain(self) -> None:
        if not self.log.is_failed:
            self._try(super().retain)

    def clean(self, now_ms: int = 2_000) -> None:
        if not self.log.is_failed:
            self._try(lambda: super(FailingLogLife, self).clean(now_ms))

    def roll(self, now_ms: int = 2_000) -> None:
        if not self.log.is_failed:
            self._try(lambda: super(FailingLogLife, self).roll(now_ms))

    def close(self) -> None:
        if self.log.is_failed:
            self.log.close()
            return
        self._try(super().close)

    def open(self) -> None:
        try:
            super().open()
        except OSError:
            self.refused += 1
            super().open()


def check_log(live: log_states.Live, config: LogConfig, *, number: int, code: int) -> int | None:
    """A life whose operation `number` fails; how many calls were refused, None beyond its end."""
    disk = MomentDisk()
    disk.fail_at = {number: code}
    try:
        life = FailingLogLife(disk, config)
    except OSError:
        assert disk.open_files == []
        return 1
    live(life)
    disk = life.disk
    disk.facts = None
    if disk.operations <= number:
        return None
    rng = random.Random(number)
    promise = life.promise()
    for state in states(disk.moment(promise), Tally(), limit=STATES_PER_FAILURE, rng=rng):
        check_recovered(state, promise, config)
    life.log.discard()
    assert disk.open_files == []
    killed = PartitionLog.open(disk.after_kill(), DIRECTORY, config, now_ms=3_000)
    assert life.durable <= killed.end_offset <= len(life.sent)
    return life.refused


async def check_broker_failure(live: broker_life.Live, *, number: int, code: int) -> int | None:
    """The same for a broker."""
    disk = MomentDisk()
    disk.fail_at = {number: code}
    life = BrokerLife(disk)
    try:
        await live(life)
    except (OSError, CorruptLog, LogFailed, UnreadableMetadata, ApiError):
        # Only a start raises; a running broker refuses.
        life.refused += 1
    await life.stop()
    if disk.operations <= number:
        return None
    assert disk.open_files == []
    rng = random.Random(number)
    promise = life.promise()
    for state in states(disk.moment(promise), Tally(), limit=STATES_PER_FAILURE, rng=rng):
        await check_broker(state, promise)
    await check_broker(disk.after_kill(), promise)
    return life.refused
