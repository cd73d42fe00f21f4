"""What a partition's log must know of its topic's configuration.

Owns the defaults and the limits that relate them. Refuses to know the names users write: the
broker maps `retention.ms` and its like to these fields. Source of the defaults: Kafka's topic
configuration, except `segment_bytes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from millrace_protocol.records import Codec
from millrace_server.log.errors import TimestampOutOfRange

SEGMENT_BYTES_MAX: Final = 2**31 - 1
"""An index entry holds a position in 31 bits."""

_MIB: Final = 1024 * 1024
_DAY_MS: Final = 24 * 3600 * 1000
_WEEK_MS: Final = 7 * _DAY_MS


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Limits of one log; -1 in a retention field means no limit.

    A CreateTime timestamp lies in `[now - timestamp_before_max_ms, now + timestamp_after_max_ms]`
    (KIP-937): one far in the future would keep its segment, and all younger ones, for ever.

    `durability` "fsync" promises that an acknowledged batch survives a power cut, "os" only that
    it survives the process. `deletes` old segments by the retention fields, `compacts` them by
    the fields of compaction; one of the two at least. `codec` is that of every batch; None leaves
    each as its producer has compressed it.
    """

    segment_bytes: int = 100 * _MIB
    segment_ms: int = _WEEK_MS
    index_interval_bytes: int = 4096
    retention_ms: int = _WEEK_MS
    retention_bytes: int = -1
    max_message_bytes: int = _MIB
    codec: Codec | None = None
    timestamp_type: Literal["CreateTime", "LogAppendTime"] = "CreateTime"
    timestamp_before_max_ms: int = 2**63 - 1
    timestamp_after_max_ms: int = 2**63 - 1
    durability: Literal["fsync", "os"] = "fsync"
    preallocate: bool = True
    deletes: bool = True
    compacts: bool = False
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    delete_retention_ms: int = _DAY_MS

    @property
    def roll_ms(self) -> int:
        """How old a segment gets: a compacted log must close it before it can be cleaned."""
        if not self.compacts:
            return self.segment_ms
        return min(self.segment_ms, self.max_compaction_lag_ms)

    def check_timestamps(self, first_ms: int, largest_ms: int, *, now_ms: int) -> None:
        """Raises `TimestampOutOfRange`. A batch without timestamps passes.

        The batch's first and largest timestamps are looked at, because the others are not known
        without decoding its records.
        """
        if largest_ms - now_ms > self.timestamp_after_max_ms:
            raise TimestampOutOfRange(
                largest_ms, now_ms=now_ms, setting="message.timestamp.after.max.ms"
            )
        if 0 <= first_ms < now_ms - self.timestamp_before_max_ms:
            raise TimestampOutOfRange(
                first_ms, now_ms=now_ms, setting="message.timestamp.before.max.ms"
            )

    def __post_init__(self) -> None:
        if not 1 <= self.segment_bytes <= SEGMENT_BYTES_MAX:
            raise ValueError(
                f"segment size {self.segment_bytes} bytes: choose 1 to {SEGMENT_BYTES_MAX}"
            )
        if self.segment_ms < 1:
            raise ValueError(f"segment age {self.segment_ms} ms: choose at least 1")
        if self.index_interval_bytes < 0:
            raise ValueError(
                f"index interval {self.index_interval_bytes} bytes: choose 0 (every batch) or more"
            )
        if self.retention_ms < -1 or self.retention_bytes < -1:
            raise ValueError(
                f"retention of {self.retention_ms} ms, {self.retention_bytes} bytes: "
                "choose 0 or more, or -1 for no limit"
            )
        if not 0 <= self.max_message_bytes <= SEGMENT_BYTES_MAX:
            raise ValueError(
                f"largest batch {self.max_message_bytes} bytes: choose 0 to {SEGMENT_BYTES_MAX}"
            )
        if not (self.deletes or self.compacts):
            raise ValueError("a log that neither deletes nor compacts: choose one at least")
        if not 0 <= self.min_cleanable_dirty_ratio <= 1:
            raise ValueError(f"dirty ratio {self.min_cleanable_dirty_ratio}: choose 0 to 1")
        if self.delete_retention_ms < 0:
            raise ValueError(f"tombstones for {self.delete_retention_ms} ms: choose 0 or more")
        if not 0 <= self.min_compaction_lag_ms <= self.max_compaction_lag_ms:
            raise ValueError(
                f"compaction after {self.min_compaction_lag_ms} to {self.max_compaction_lag_ms} "
                "ms: choose 0 or more, and a maximum that is not below the minimum"
            )
