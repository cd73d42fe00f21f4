"""The lag of a group: how far its committed offsets are behind the high watermarks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from millrace_protocol.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from millrace_protocol.errors import WireError
from millrace_server.api_error import ApiError
from millrace_server.group.image import GroupOffsets
from millrace_server.group.requests import DescribedGroup
from millrace_server.loop.fair_scheduler import FairScheduler
from millrace_server.partitions.partition_table import PartitionTable

Owners = Mapping[str, Mapping[int, str]]
"""Topic to partition to the id of the member that has it."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition; None is what is unknown, or not there."""

    topic: str
    partition: int
    committed_offset: int | None
    high_watermark: int | None
    member_id: str | None

    @property
    def lag(self) -> int | None:
        """Records between the two; below 0 when an offset ahead of the log was committed."""
        if self.committed_offset is None or self.high_watermark is None:
            return None
        return self.high_watermark - self.committed_offset


class GroupLag:
    """The partitions of a group, sorted; each is looked up when the iterator reaches it."""

    def __init__(
        self,
        committed: GroupOffsets,
        owners: Owners,
        partitions: PartitionTable,
        *,
        sees: Callable[[str], bool],
    ) -> None:
        """Of the topics for which `sees` is true."""
        self._committed = committed
        self._owners = owners
        self._partitions = partitions
        self._numbers = {
            topic: sorted({*committed.get(topic, ()), *owners.get(topic, ())})
            for topic in sorted({*committed, *owners})
            if sees(topic)
        }

    def __len__(self) -> int:
        return sum(map(len, self._numbers.values()))

    def __iter__(self) -> Iterator[PartitionLag]:
        for topic, numbers in self._numbers.items():
            for number in numbers:
                committed = self._committed.get(topic, {}).get(number)
                yield PartitionLag(
                    topic,
                    number,
                    None if committed is None or committed.offset < 0 else committed.offset,
                    self._high_watermark(topic, number),
                    self._owners.get(topic, {}).get(number),
                )

    def _high_watermark(self, topic: str, number: int) -> int | None:
        try:
            return self._partitions.get(topic, number).high_watermark
        except ApiError:
            return None


async def owners_of(group: DescribedGroup, scheduler: FairScheduler) -> Owners:
    """The members that have partitions; empty for a group that is not of consumers."""
    owners: dict[str, dict[int, str]] = {}
    if group.protocol_type != PROTOCOL_TYPE:
        return owners
    for member in group.members:
        await scheduler.yield_()
        try:
            assignment = decode_assignment(member.assignment)
        except WireError:
            continue  # The bytes are the members' own; a member without an assignment has none.
        for assigned in assignment.partitions:
            owned = dict.fromkeys(assigned.partitions, member.member_id)
            owners.setdefault(assigned.topic, {}).update(owned)
    return owners
