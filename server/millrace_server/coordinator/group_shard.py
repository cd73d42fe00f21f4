"""One partition of the offsets topic and the coordinator that lives in it.

The shell around `group.coordinator`: carries out its effects. Records are appended in the order
in which they were asked for, and each append is reported back in that order, once it is durable.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from millrace_protocol.errors import ErrorCode
from millrace_protocol.records import CorruptBatch, encode_batch, read_header
from millrace_server.api_error import ApiError
from millrace_server.environment.seams import Environment
from millrace_server.group.config import GroupConfig
from millrace_server.group.coordinator import Coordinator
from millrace_server.group.effects import Append, Effect, Reply, Result
from millrace_server.group.records import (
    GroupRecord,
    UnknownRecord,
    UnreadableRecord,
    decode_record,
    encode_record,
)
from millrace_server.group.requests import Moment
from millrace_server.group.room import Room
from millrace_server.logs import get_logger
from millrace_server.loop.alarm import Alarm
from millrace_server.partitions.core_errors import CORE_ERRORS, as_api_error
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.replay import READ_BYTES, records_in

log = get_logger("millrace.groups")
REPLAY_PIECE = 500
"""Records replayed in one go, about a millisecond."""


class GroupShard:
    """Opened by `load`; asks `coordinator` and carries out what it wants until `close`.

    `ask` runs one event of the coordinator: it is given a token, on which the answer comes.
    """

    def __init__(
        self,
        partition: Partition,
        config: GroupConfig,
        room: Room,
        env: Environment,
        alarm: Alarm[GroupShard],
    ) -> None:
        self.coordinator = Coordinator(
            config, room=room, make_id=lambda: f"{env.rng.getrandbits(128):032x}"
        )
        self._partition = partition
        self._env = env
        self._alarm = alarm
        self._effects: deque[Effect] = deque()
        self._running = False
        self._in_flight: deque[tuple[int, asyncio.Future[None] | ApiError | None]] = deque()

    async def load(self) -> None:
        """Replays the partition, and lets the groups live.

        Raises `ApiError` when the partition cannot be read: then the groups stay away.
        """
        partition, env = self._partition, self._env
        began_ms = env.clock.monotonic_ms()
        offset, count = partition.log.start_offset, 0
        try:
            while offset < partition.high_watermark:
                found = partition.read(offset, max_bytes=READ_BYTES)
                if found.slice is None:
                    break
                records = await env.spawn.blocking(records_in, found.slice, offset)
                for start in range(0, len(records), REPLAY_PIECE):
                    for _, _, key, value, _ in records[start : start + REPLAY_PIECE]:
                        self._replay(key, value)
                    await asyncio.sleep(0)
                offset = found.next_offset
                count += len(records)
        except (UnreadableRecord, CorruptBatch) as error:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{partition.topic}-{partition.number} cannot be read, so its groups are not "
                f"served: {error}",
            ) from error
        except CORE_ERRORS as error:
            raise as_api_error(error) from error
        self._run(self.coordinator.on_loaded(self._moment()))
        if count:
            log.info(
                "groups loaded",
                partition=partition.number,
                records=count,
                after_ms=env.clock.monotonic_ms() - began_ms,
            )

    def ask(
        self, event: Callable[[asyncio.Future[Result], Moment], Sequence[Effect]]
    ) -> asyncio.Future[Result]:
        """Runs an event that is answered on its token, now or later."""
        token: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._run(event(token, self._moment()))
        return token

    def tell(self, event: Callable[[Moment], Sequence[Effect] | None]) -> None:
        """Runs an event without a reply. Raises what the event raises."""
        self._run(event(self._moment()) or ())

    def ring(self) -> None:
        """A deadline of the coordinator has come."""
        self.tell(self.coordinator.on_deadline)

    def close(self) -> None:
        """Tells every waiting request that the coordinator is gone; nothing is written after it."""
        self._run(self.coordinator.unload(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        self._in_flight.clear()

    def _replay(self, key: bytes | None, value: bytes | None) -> None:
        record = decode_record(key, value)
        if isinstance(record, UnknownRecord):
            log.warning("record passed over", partition=self._partition.number, reason=record.note)
        else:
            self.coordinator.replay(record)

    def _moment(self) -> Moment:
        clock = self._env.clock
        return Moment(clock.monotonic_ms(), clock.wall_ms())

    def _run(self, effects: Sequence[Effect]) -> None:
        """Carries out effects, and those that follow from them, in order."""
        self._effects.extend(effects)
        if self._running:
            return
        self._running = True
        try:
            while self._effects:
                effect = self._effects.popleft()
                if isinstance(effect, Reply):
                    self._reply(effect)
                else:
                    self._append(effect)
        finally:
            self._running = False
        due_ms = self.coordinator.deadline_ms()
        if due_ms is None:
            self._alarm.cancel(self)
        else:
            self._alarm.set(self, due_ms)

    def _reply(self, effect: Reply) -> None:
        token = effect.token
        assert isinstance(token, asyncio.Future)
        # Who hung up has cancelled it.
        if not token.done():
            token.set_result(effect.result)

    def _append(self, effect: Append) -> None:
        try:
            durable: asyncio.Future[None] | ApiError | None = self._write(effect.records)
        except CORE_ERRORS as error:
            durable = as_api_error(error)
        self._in_flight.append((effect.append_id, durable))
        if isinstance(durable, asyncio.Future):
            durable.add_done_callback(self._came_back)
        else:
            self._settle()

    def _write(self, records: Sequence[GroupRecord]) -> asyncio.Future[None] | None:
        now_ms = self._env.clock.wall_ms()
        keys, values = zip(*map(encode_record, records), strict=True)
        batch = encode_batch(values, keys=keys, timestamps_ms=now_ms)
        header = read_header(batch)
        appended = self._partition.append(memoryview(batch), header, now_ms=now_ms)
        end_offset = appended.last_offset + 1
        return None if self._partition.is_acked(end_offset) else self._partition.acked(end_offset)

    def _came_back(self, _: object) -> None:
        self._settle()

    def _settle(self) -> None:
        """Reports the appends that have ended, up to the first that has not."""
        while self._in_flight:
            append_id, durable = self._in_flight[0]
            if isinstance(durable, asyncio.Future):
                if not durable.done():
                    return
                if durable.cancelled() or durable.exception() is not None:
                    # It is unknown what is on the disk; the next start tells.
                    self.close()
                    return
            self._in_flight.popleft()
            if isinstance(durable, ApiError):
                effects = self.coordinator.on_append_failed(append_id, durable, self._moment())
            else:
                effects = self.coordinator.on_appended(append_id, self._moment())
            self._run(effects)
