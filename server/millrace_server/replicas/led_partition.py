"""A partition that this broker leads and others follow: the shell around `PartitionLeader`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.environment.seams import Clock
from millrace_server.partitions.partition import Partition
from millrace_server.replication.effects import (
    AdvanceHighWatermark,
    AdvanceLowWatermark,
    LeaderEffect,
    ProposeIsr,
)
from millrace_server.replication.errors import NotEnoughReplicas
from millrace_server.replication.leader import PartitionLeader
from millrace_server.replication.messages import PartitionKey

OnMoved = Callable[["LedPartition"], None]


class LedPartition:
    """Carries out the effects of one leader's core, within the call that has led to them."""

    def __init__(
        self,
        key: PartitionKey,
        partition: Partition,
        core: PartitionLeader,
        clock: Clock,
        *,
        propose: Callable[[LedPartition, ProposeIsr], None],
        on_appended: OnMoved,
        on_offsets_moved: OnMoved,
    ) -> None:
        """`on_appended` and `on_offsets_moved` tell the followers' fetches."""
        self.key = key
        self.partition = partition
        self.core = core
        self._clock = clock
        self._propose = propose
        self._on_appended = on_appended
        self._on_offsets_moved = on_offsets_moved
        self._deletions: list[tuple[int, asyncio.Future[None]]] = []

    def leads(self, partition: Partition, epoch: int) -> bool:
        """Whether this is the leader of a partition in an epoch."""
        return self.partition is partition and self.core.state.leader_epoch == epoch

    def check_append(self) -> None:
        """See `ReplicaHooks`."""
        try:
            self.core.check_append()
        except NotEnoughReplicas as error:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, str(error)) from error

    def on_appended(self) -> None:
        """See `ReplicaHooks`."""
        self.carry_out(self.core.on_appended(self._clock.monotonic_ms()))
        self._on_appended(self)

    def deleted(self, offset: int) -> asyncio.Future[None]:
        """See `ReplicaHooks`."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._deletions.append((offset, done))
        self.carry_out(self.core.await_low_watermark(offset, self._clock.monotonic_ms()))
        return done

    def end(self) -> None:
        """This broker leads the partition no more."""
        refusal = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        deletions, self._deletions = self._deletions, []
        for _, done in deletions:
            if not done.done():
                done.set_exception(refusal)

    def on_stored(self) -> None:
        """See `ReplicaHooks`."""
        self.carry_out(self.core.on_acked(self._clock.monotonic_ms()))

    def carry_out(self, effects: list[LeaderEffect]) -> None:
        """Does what the core wants done."""
        for effect in effects:
            match effect:
                case AdvanceHighWatermark():
                    self.partition.advance_high_watermark(effect.offset)
                    self._on_offsets_moved(self)
                case AdvanceLowWatermark():
                    self._end_deletions(effect.offset)
                case ProposeIsr():
                    self._propose(self, effect)

    def _end_deletions(self, offset: int) -> None:
        waiting, self._deletions = self._deletions, []
        for wanted, done in waiting:
            if done.done():
                continue
            if wanted <= offset:
                done.set_result(None)
            else:
                self._deletions.append((wanted, done))
        if self._deletions:
            lowest = min(wanted for wanted, _ in self._deletions)
            self.carry_out(self.core.await_low_watermark(lowest, self._clock.monotonic_ms()))
