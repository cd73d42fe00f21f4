"""`python -m tests.cli.fixed_cluster ARGUMENTS`: the command line beside a cluster that is data.

Owns three brokers, a topic and a group whose values never change, so that what a terminal shows is
the same in every run. `--progress FILE` shows the bar of `millrace produce FILE` with a clock that
stands still, until a line is typed.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import millrace.admin
from millrace._broker_error import broker_error
from millrace.admin import ListedOffset, PartitionDescription, TopicDescription, TopicOutcome
from millrace.brokers import (
    BrokerDescription,
    ClusterDescription,
    ConfigValue,
    LogDirectory,
    PartitionSize,
    QuorumDescription,
    QuorumReplica,
)
from millrace.groups import (
    CommittedOffset,
    GroupDescription,
    GroupListing,
    MemberDescription,
    Outcome,
)
from millrace.records import TopicPartition
from millrace.statistics import BrokerStatistics, Metric, Sample
from millrace_cli.main import main
from millrace_cli.read_progress import read_progress
from millrace_cli.record_producer import summary_line
from millrace_protocol.errors import ErrorCode

CLICKS = "shop.checkout.clicks"
BOUNDS = (0.001, 0.01, 0.1)
_PLACES = [TopicPartition(CLICKS, number) for number in range(4)]


def _member(number: int, *numbers: int) -> MemberDescription:
    return MemberDescription(
        f"hourly-report-{number}-7d0f3c52-9a1e-4b6f-8c3d-2e5a7b9c1d0{number}",
        None,
        f"hourly-report-{number}",
        f"10.0.0.1{number}",
        (CLICKS,),
        tuple(_PLACES[each] for each in numbers),
    )


_MEMBERS = (_member(1, 0, 1), _member(2, 2, 3))
_GROUP = GroupDescription(
    "hourly-report",
    "Stable",
    7,
    "consumer",
    "cooperative-sticky",
    _MEMBERS[0].member_id,
    _MEMBERS,
)
_PARTITIONS = tuple(
    PartitionDescription(number, 1 + number % 3, 4, replicas, isr)
    for number, replicas, isr in (
        (0, (1, 2), (1, 2)),
        (1, (2, 3), (2, 3)),
        (2, (3, 1), (3,)),
        (3, (1, 2), (1, 2)),
    )
)
_TOPIC = TopicDescription(CLICKS, uuid.UUID(int=1), False, _PARTITIONS)


class FixedAdmin:
    """The calls of `millrace.admin.Admin` that the commands of the pictures make."""

    def __init__(self, servers: str, **options: Any) -> None:
        pass

    async def __aenter__(self) -> FixedAdmin:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    async def describe_group(self, group: str) -> GroupDescription:
        """The one group."""
        return _GROUP

    async def list_groups(self) -> list[GroupListing]:
        """The one group."""
        return [GroupListing(_GROUP.group, _GROUP.state, _GROUP.protocol_type, 2)]

    async def describe_groups(self, groups: Iterable[str]) -> dict[str, Outcome[GroupDescription]]:
        """The one group."""
        return {_GROUP.group: Outcome(_GROUP)}

    async def list_group_offsets(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """Commits in three of four partitions."""
        offsets = (1_204_331, 1_198_072, 0)
        return {
            where: CommittedOffset(offset, "", 4, 0)
            for where, offset in zip(_PLACES, offsets, strict=False)
        }

    async def list_offsets(
        self, questions: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, ListedOffset]:
        """The ends."""
        ends = dict(zip(_PLACES, (1_204_331, 1_310_400, 1_250_000, 0), strict=True))
        return {where: ListedOffset(ends[where], 0, 4) for where in questions}

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """The one topic."""
        return [CLICKS]

    async def describe_topics(self, names: Iterable[str]) -> list[TopicOutcome[TopicDescription]]:
        """The one topic; its partition 2 lacks a replica."""
        return [TopicOutcome(CLICKS, _TOPIC)]

    async def describe_cluster(self) -> ClusterDescription:
        """Three brokers."""
        brokers = [
            BrokerDescription(n, f"broker-{n}.internal", 9092, "eu-central-1" + "abc"[n - 1])
            for n in (1, 2, 3)
        ]
        cluster_id = "0b7e3d1c-7a55-4bb2-8c0e-5b8a5f7a9f10"
        return ClusterDescription(cluster_id, 2, tuple(brokers))

    async def describe_quorum(self) -> QuorumDescription:
        """Brokers 1 to 3 vote, and 2 is the active controller; 4 is a voter that is away."""
        ends = {
            1: (40_211, 120, 120),
            2: (40_213, 0, 0),
            3: (40_213, 80, 80),
            4: (39_807, None, None),
        }
        replicas = (
            QuorumReplica(node_id, uuid.UUID(int=node_id), True, end, fetched_ms, caught_up_ms)
            for node_id, (end, fetched_ms, caught_up_ms) in ends.items()
        )
        return QuorumDescription(2, 7, 40_213, tuple(replicas))

    async def describe_configs(self, topic: str) -> dict[str, ConfigValue]:
        """The setting that says how many replicas must be in sync."""
        return {"min.insync.replicas": ConfigValue("1", True, "default", False, "")}

    async def describe_log_dirs(
        self, topics: Iterable[str] | None = None, *, broker: int
    ) -> list[LogDirectory]:
        """One directory of each broker; broker 3 has a partition offline."""
        sizes = {
            TopicPartition(CLICKS, each.partition): PartitionSize(48_213_774 * broker, 0)
            for each in _PARTITIONS
            if broker in each.replicas
        }
        if broker == 3:
            reason = "segment 00000000000000000000.log is corrupt at byte 4096"
            error = broker_error(ErrorCode.KAFKA_STORAGE_ERROR, reason, about=f"{CLICKS}-2")
            sizes[TopicPartition(CLICKS, 2)] = PartitionSize(-1, -1, error)
        return [LogDirectory(broker, "/var/lib/millrace", 500 * 10**9, 120 * 10**9, sizes)]

    async def describe_statistics(self, broker: int, *, prefix: str = "") -> BrokerStatistics:
        """A gauge, a counter and a histogram."""
        open_ = Sample({"state": "open"}, 12 + broker)
        requests = Sample({"dialect": "native", "api": "Produce"}, 48_213 * broker)
        flushes = Sample({}, 3.25 * broker, (90, 9, 1, 0))
        metrics = (
            Metric("millrace_connections", "gauge", "", "", (), (open_,)),
            Metric("millrace_requests_total", "counter", "", "", (), (requests,)),
            Metric(
                "millrace_flush_duration_seconds", "histogram", "seconds", "", BOUNDS, (flushes,)
            ),
        )
        found = {metric.name: metric for metric in metrics}
        return BrokerStatistics(broker, "0.1.0", 93_784_000 + 1_000 * broker, found)


def _show_progress(file: str) -> None:
    seconds = 0.0
    with read_progress([file], clock=lambda: seconds) as on_read:
        for _ in range(2):
            seconds += 1.0
            on_read(700_000)
        input()
    print(summary_line(20_000, 2_000_000, 2.5), file=sys.stderr)


if __name__ == "__main__":
    if sys.argv[1] == "--progress":
        _show_progress(sys.argv[2])
    else:
        millrace.admin.Admin = FixedAdmin  # type: ignore[assignment, misc]
        main()
