"""Sticky placement where members subscribe to different topics.

How many partitions a member will have is not known beforehand. Owns the search: each member keeps
what it has, the rest goes to the member with the least, and then partitions move while a move
helps. A move helps when the receiver, which subscribes to the topic, has at least two fewer than
the giver:

    size(giver) > size(receiver) + 1

Every move lowers the sum of the squared sizes, so the search ends, and what it ends with is
balanced: no single move helps. The first rounds move only what had no owner, which costs no member
anything.

Source: the general case of Kafka's AbstractStickyAssignor, without racks, with the same result. Its
check for balance before each move and its return to the placement before the moves are not here:
moves end by themselves when nothing helps, and every move improves Kafka's score. Three things are
otherwise. There a partition may move to a former owner that left its topic. Of several partitions
that could be swapped back, any may be taken there, the one that moved first here. And where a swap
has to be undone at both ends, one end is undone there: a member with too many keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush

from millrace.records import TopicPartition


class Balance:
    """A placement on its way to balance.

    `owners` is the result: every partition of a topic with subscribers has one among them.
    `subscribers` has the member ids of each topic that exists; at least one each. `owners` at the
    start has existing partitions only, with owners that subscribe.
    """

    def __init__(
        self,
        partition_counts: Mapping[str, int],
        subscribers: Mapping[str, list[str]],
        owners: Mapping[TopicPartition, str],
    ) -> None:
        self.owners = dict(owners)
        self._subscribers = subscribers
        self._counts = partition_counts
        # Topics that few can have come first: the others can still even out what those did.
        self._topics = sorted(subscribers, key=lambda topic: (len(subscribers[topic]), topic))
        self._sizes = {member: 0 for members in subscribers.values() for member in members}
        for member in self.owners.values():
            self._sizes[member] += 1
        self._origins: dict[TopicPartition, str] = {}
        self._moved: dict[tuple[str, str, str], dict[TopicPartition, None]] = {}

    def place_rest(self) -> dict[str, list[TopicPartition]]:
        """Gives what has no owner to the member with the least; returns it by topic."""
        placed: dict[str, list[TopicPartition]] = {}
        for topic in self._topics:
            partitions = self._all(topic)
            free = [partition for partition in partitions if partition not in self.owners]
            if not free:
                continue
            placed[topic] = free
            least = _Least(self._subscribers[topic], self._sizes)
            for partition in free:
                member = least.member()
                self.owners[partition] = member
                self._resize(member, 1, least)
        return placed

    def even_out(
        self,
        formers: Mapping[TopicPartition, str],
        within: Mapping[str, list[TopicPartition]] | None = None,
    ) -> None:
        """Moves partitions until no move helps: those of `within`, or any.

        A partition goes to its former owner where that helps, else to the member with the least.
        """
        moved = True
        while moved:
            moved = False
            for topic in self._topics:
                partitions = self._all(topic) if within is None else within.get(topic, ())
                if partitions and not self._is_even(topic):
                    moved |= self._even_out_topic(topic, partitions, formers)

    def _even_out_topic(
        self,
        topic: str,
        partitions: Iterable[TopicPartition],
        formers: Mapping[TopicPartition, str],
    ) -> bool:
        members = frozenset(self._subscribers[topic])
        least = _Least(self._subscribers[topic], self._sizes)
        moved = False
        for partition in partitions:
            size = self._sizes[self.owners[partition]]
            former = formers.get(partition)
            if former in members and size > self._sizes[former] + 1:
                receiver = former
            else:
                receiver = least.member()
                if size <= self._sizes[receiver] + 1:
                    continue
            self._give(partition, receiver, least)
            moved = True
        return moved

    def _is_even(self, topic: str) -> bool:
        sizes = [self._sizes[member] for member in self._subscribers[topic]]
        return max(sizes) - min(sizes) <= 1

    def _give(self, partition: TopicPartition, receiver: str, least: _Least) -> None:
        """Moves `partition`, or undoes a move of the same topic that went the other way.

        Both have the same sizes as their result, and the second leaves two partitions where they
        were instead of exchanging them.
        """
        giver = self.owners[partition]
        origin = self._origins.get(partition, giver)
        opposite = self._moved.get((partition.topic, receiver, origin))
        if not opposite:
            self._move(partition, receiver, least)
            return
        if origin != giver:
            self._move(partition, origin, least)
        self._move(next(iter(opposite)), receiver, least)

    def _move(self, partition: TopicPartition, receiver: str, least: _Least) -> None:
        giver = self.owners[partition]
        origin = self._origins.pop(partition, giver)
        if origin != giver:
            del self._moved[partition.topic, origin, giver][partition]
        if origin != receiver:
            self._origins[partition] = origin
            self._moved.setdefault((partition.topic, origin, receiver), {})[partition] = None
        self.owners[partition] = receiver
        self._resize(giver, -1, least)
        self._resize(receiver, 1, least)

    def _resize(self, member: str, change: int, least: _Least) -> None:
        self._sizes[member] += change
        least.resized(member)

    def _all(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for number in range(self._counts[topic])]


class _Least:
    """Which of some members has least; of those the first by id.

    A heap that holds an entry for each size that a member had. An entry that is no longer true is
    dropped when it comes up.
    """

    __slots__ = ("_heap", "_sizes")

    def __init__(self, members: Iterable[str], sizes: dict[str, int]) -> None:
        self._sizes = sizes
        self._heap = [(sizes[member], member) for member in members]
        heapify(self._heap)

    def member(self) -> str:
        heap = self._heap
        while heap[0][0] != self._sizes[heap[0][1]]:
            heappop(heap)
        return heap[0][1]

    def resized(self, member: str) -> None:
        heappush(self._heap, (self._sizes[member], member))
