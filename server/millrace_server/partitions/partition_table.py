"""The partitions this broker holds, by topic and number."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError, quoted
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.role import Role


class NotOpenYet(ApiError):
    """The broker opens or creates this partition, and has not finished."""

    def __init__(self, topic: str, number: int) -> None:
        super().__init__(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"Partition {topic}-{number} is not open yet: the broker creates it, or has just "
            "started and looks through what it found; try again in a moment",
        )


class OpenedAgainLater(ApiError):
    """The partition could not be opened or reported, and the cause may pass: the broker tries
    again."""

    def __init__(self, topic: str, number: int, cause: OSError | ApiError) -> None:
        super().__init__(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"Partition {topic}-{number} is offline: {cause}; the broker tries by itself to open "
            "it again",
        )
        self.cause = cause


def _nowhere(topic: str, number: int) -> None:
    """Of a broker that has all partitions."""


class PartitionTable:
    """Every partition of this broker, or the refusal of one that is offline.

    `being_opened` are those whose files recovery may change at this moment.
    """

    def __init__(self, elsewhere: Callable[[str, int], ApiError | None] = _nowhere) -> None:
        """`elsewhere(topic, number)` is the refusal of a partition that other brokers have; None if
        there is no such partition."""
        self._elsewhere = elsewhere
        self.being_opened: set[tuple[str, int]] = set()
        self._by_topic: dict[str, dict[int, Partition | ApiError]] = {}
        self._changed = asyncio.Event()

    def __iter__(self) -> Iterator[Partition]:
        for partitions in list(self._by_topic.values()):
            for partition in list(partitions.values()):
                if isinstance(partition, Partition):
                    yield partition

    def states(self) -> Iterator[str]:
        """`online` or `offline`, for each partition."""
        for _, _, partition in self.entries():
            yield "online" if isinstance(partition, Partition) else "offline"

    def entries(self) -> Iterator[tuple[str, int, Partition | ApiError]]:
        """Topic and number of each partition, and the refusal in place of one that is offline."""
        for topic, partitions in list(self._by_topic.items()):
            for number, partition in list(partitions.items()):
                yield topic, number, partition

    def add(self, partition: Partition) -> None:
        """Puts a partition in service."""
        self._by_topic.setdefault(partition.topic, {})[partition.number] = partition
        self.tell_change()

    def set_offline(self, topic: str, number: int, refusal: ApiError) -> None:
        """Every request for this partition is answered with `refusal` until it is added."""
        self._by_topic.setdefault(topic, {})[number] = refusal
        self.tell_change()

    def tell_change(self) -> None:
        """Wakes every `until_...` call, which looks again."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def remove(self, topic: str, numbers: Iterable[int]) -> list[Partition]:
        """Takes partitions out of service and returns those that were online."""
        known = self._by_topic.get(topic, {})
        removed = [known.pop(number, None) for number in numbers]
        if not known:
            self._by_topic.pop(topic, None)
        self.tell_change()
        return [p for p in removed if isinstance(p, Partition)]

    def of_topic(self, topic: str) -> list[Partition]:
        """The online partitions of a topic."""
        return [p for p in self._by_topic.get(topic, {}).values() if isinstance(p, Partition)]

    def find(self, topic: str, number: int) -> Partition | None:
        """The partition if it is online, whatever its role."""
        found = self._by_topic.get(topic, {}).get(number)
        return found if isinstance(found, Partition) else None

    def offline(self, topic: str, number: int) -> ApiError | None:
        """Why a partition is offline; None when it is online or not here."""
        found = self._by_topic.get(topic, {}).get(number)
        return found if isinstance(found, ApiError) else None

    async def until_leading(self, topic: str, number: int, epoch: int) -> None:
        """Returns when the partition takes appends in `epoch` or a later one has begun, and when it
        is offline for good or gone.

        The metadata names a leader before the leader's log has begun the epoch.
        """
        while self._is_to_lead(topic, number, epoch):
            await self._changed.wait()

    async def until_not_being_opened(self, topic: str) -> None:
        """Returns when recovery changes no file of the topic."""
        while any(name == topic for name, _ in self.being_opened):
            await self._changed.wait()

    def _is_to_lead(self, topic: str, number: int, epoch: int) -> bool:
        found = self._by_topic.get(topic, {}).get(number)
        if not isinstance(found, Partition):
            return isinstance(found, NotOpenYet | OpenedAgainLater)
        if found.log.read_only_cause is not None or found.leader_epoch < epoch:
            return True
        return found.leader_epoch == epoch and found.leadership.role is not Role.LEADER

    def get(self, topic: str, number: int) -> Partition:
        """The partition, for a client. Raises `ApiError` when there is none, it is offline, or
        another broker leads it."""
        partitions = self._by_topic.get(topic, {})
        partition = partitions.get(number)
        if partition is None:
            raise self._elsewhere(topic, number) or _unknown(topic, number, len(partitions))
        if isinstance(partition, ApiError):
            raise partition
        partition.check_leader()
        return partition


def _unknown(topic: str, number: int, count: int) -> ApiError:
    if not count:
        return ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"There is no topic {quoted(topic)} here; create it first or check the name",
        )
    return ApiError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"Topic {topic!r} has no partition {number}; it has 0 to {count - 1}",
    )
