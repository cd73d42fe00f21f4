"""A partition that this broker leads and others follow: the shell around `PartitionLeader`."""

from __future__ import annotations

from collections.abc import Callable

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.environment.seams import Clock
from millrace_server.partitions.partition import Partition
from millrace_server.replication.effects import AdvanceHighWatermark, LeaderEffect, ProposeIsr
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
                case ProposeIsr():
                    self._propose(self, effect)
