"""Limits of group coordinators.

Owns the numbers and how they relate. The names that users write are in `config`. Source of the
defaults: Kafka's broker configuration, where it has one.
"""

from __future__ import annotations

from dataclasses import dataclass

from millrace_server.principal_shares import NO_SHARES, ShareRule

GROUP_ID_LENGTH_MAX = 249
"""Characters, as for topics: the id is in the key of every record of the group."""
NAME_LENGTH_MAX = 1_024
"""Characters of a member id, instance id, client id or protocol name: each is in the group's
records, where a string has at most 32,767 bytes."""
PROTOCOLS_MAX = 32
"""Assignors that one member may offer; Kafka's clients offer one to three."""
TOMBSTONES_PER_APPEND = 1_000
"""A tombstone has about 60 bytes and at most 2.4 kB, so such an append fits a batch of 1 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Limits of one coordinator. Raises `ValueError` when they contradict each other."""

    session_timeout_min_ms: int = 6_000
    """Kafka's `group.min.session.timeout.ms`: shorter sessions need more heartbeats. An embedded
    broker in a test may go lower."""

    session_timeout_max_ms: int = 1_800_000
    """Kafka's `group.max.session.timeout.ms`: a dead member holds its partitions that long."""

    initial_rebalance_delay_ms: int = 3_000
    """Kafka's `group.initial.rebalance.delay.ms`: an empty group waits this long for more members
    after its first, and again after each further one up to the rebalance timeout; 0 for no wait."""

    new_member_join_timeout_ms: int = 300_000
    """A new member cannot heartbeat while its first join is parked, and its connection may be
    gone: after this it is removed. Kafka's five minutes."""

    group_size_max: int = 1_000
    """Members of one group: completing a rebalance costs time and a record in their number."""

    groups_max: int = 2_000
    """Groups of one coordinator, of which a broker has one per partition of the offsets topic."""

    pending_members_max: int = 10_000
    """Member ids given out and not used yet, in all groups of a broker: some 500 bytes each, and
    3,000 with a group of its own. Above it a coordinator drops its oldest, and a member that joins
    with a dropped id has to start without one."""

    memory_bytes: int = 64 << 20
    """Groups and members of all coordinators of a broker, with their metadata and assignments:
    twenty thousand members. At the limit no member is added."""

    group_metadata_bytes_max: int = 900_000
    """The metadata of all members of a group, and the record of a group with its assignment: it has
    to fit one batch of the default `max.message.bytes`, 1 MiB."""

    offset_metadata_bytes_max: int = 4_096
    """UTF-8 bytes of the text beside one committed offset; Kafka's `offset.metadata.max.bytes`."""

    offsets_bytes_max: int = 96 << 20
    """Committed offsets of all coordinators of a broker: 300,000 with a short text beside each, in
    memory and replayed at start in a second or two. At the limit no offset of a further partition
    is committed."""

    shares: ShareRule = NO_SHARES
    """How much of each bound above one principal may use."""

    offsets_retention_ms: int = 10_080 * 60_000
    """Kafka's `offsets.retention.minutes`, a week: counted from when a group became empty, for
    commits without membership from the commit."""

    offsets_retention_check_interval_ms: int = 600_000
    """Kafka's `offsets.retention.check.interval.ms`."""

    expiry_slice: int = 20_000
    """Offsets checked for expiry in one go, some milliseconds; the rest is checked later."""

    def __post_init__(self) -> None:
        if not 1 <= self.session_timeout_min_ms <= self.session_timeout_max_ms:
            raise ValueError(
                f"session timeouts from {self.session_timeout_min_ms} to "
                f"{self.session_timeout_max_ms} ms: choose a minimum of at least 1 and a maximum "
                "that is not below it"
            )
        if self.initial_rebalance_delay_ms < 0:
            raise ValueError(
                f"initial_rebalance_delay_ms is {self.initial_rebalance_delay_ms}; choose 0 (no "
                "delay) or more"
            )
        if self.offset_metadata_bytes_max not in range(32_768):
            raise ValueError(
                f"offset_metadata_bytes_max is {self.offset_metadata_bytes_max}; choose 0 to "
                "32767, which is what a record can hold"
            )
        for name in (
            "new_member_join_timeout_ms",
            "group_size_max",
            "groups_max",
            "pending_members_max",
            "memory_bytes",
            "group_metadata_bytes_max",
            "offsets_bytes_max",
            "offsets_retention_ms",
            "offsets_retention_check_interval_ms",
            "expiry_slice",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
