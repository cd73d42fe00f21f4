"""The batches of one partition between `send` and the ack, in order.

Owns order, retries and sequence numbers of one partition. Refuses to know time, other partitions
and the network. Invariants, with batches numbered as they were opened:

    in_flight < waiting < open        except that a retried batch goes back to its place in waiting
    no batch that is known to be in no log stands before an uncertain one in waiting

The last holds because a broker takes sequences without gaps only.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from itertools import chain

from millrace._producer.batch import NO_SEQUENCE, Batch
from millrace.errors import MillraceError


class PartitionQueue:
    """One partition's open batch, those that wait, and those in flight.

    `recovering`: a batch came back, so nothing is sent until the rest has, and then one at a time
    until one is acked; that keeps the order. `acked`: a batch was acked in this epoch.
    `pause_until_ms` is when to try again at the same broker, and `node_id` the broker that was sent
    to last. `batch_bytes_max` is what the topic's refusals tell of the size of its batches.
    """

    __slots__ = (
        "acked",
        "attempts",
        "batch_bytes_max",
        "in_flight",
        "last_error",
        "next_ordinal",
        "next_sequence",
        "node_id",
        "open",
        "partition",
        "pause_until_ms",
        "recovering",
        "topic",
        "waiting",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.open: Batch | None = None
        self.waiting: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.next_ordinal = 0
        self.next_sequence = 0
        self.recovering = False
        self.acked = False
        self.attempts = 0
        self.last_error: MillraceError | None = None
        """Why the last attempt failed; None once a batch was acked."""
        self.pause_until_ms = 0
        self.node_id = -1
        self.batch_bytes_max = sys.maxsize

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to send or to wait for."""
        return self.open is None and not self.waiting and not self.in_flight

    @property
    def has_unsent(self) -> bool:
        """Whether there is a batch that is not in flight."""
        return self.open is not None or bool(self.waiting)

    def batches(self) -> list[Batch]:
        """All batches, those in flight first; some of these may be settled already."""
        found = [*self.in_flight, *self.waiting]
        if self.open is not None:
            found.append(self.open)
        return found

    def oldest(self) -> Batch | None:
        """The first batch that is not settled."""
        for batch in chain(self.in_flight, self.waiting):
            if not batch.settled:
                return batch
        return self.open

    def close_open(self) -> Batch | None:
        """Seals the open batch: it waits, and the next record opens another."""
        batch, self.open = self.open, None
        if batch is not None:
            batch.limit_bytes = -1
            self.waiting.append(batch)
        return batch

    def is_paused(self, now_ms: int, node_id: int | None) -> bool:
        """Whether the leader is not to be asked again yet; another one is at once (KIP-951)."""
        return self.pause_until_ms > now_ms and node_id in (None, self.node_id)

    def note_leader(self, node_id: int) -> None:
        """A batch goes to this broker; another one than before has failed at nothing yet."""
        if node_id != self.node_id:
            self.node_id, self.attempts = node_id, 0

    def may_send(self, in_flight_max: int) -> bool:
        """Whether order allows one more batch on its way.

        A broker knows a producer's last `in_flight_max` batches and takes an older one that is
        sent again for a new one. So the span from the oldest batch in flight to the newest ever
        sent counts, and not how many of them are in flight.
        """
        if not self.in_flight:
            return True
        if self.recovering:
            return False
        if self.waiting and self.waiting[0].ordinal >= 0:
            return len(self.in_flight) < in_flight_max
        oldest = min(batch.ordinal for batch in self.in_flight)
        return self.next_ordinal - oldest < in_flight_max

    def take(self) -> Batch:
        """Moves the first waiting batch into flight."""
        batch = self.waiting.popleft()
        self.in_flight.append(batch)
        if batch.ordinal < 0:
            batch.ordinal = self.next_ordinal
            self.next_ordinal += 1
        return batch

    def acknowledge(self, batch: Batch) -> None:
        """Takes an acked batch out of flight."""
        self.in_flight.remove(batch)
        self.acked = True
        # One that overtook a batch which has to be sent again says nothing about that.
        if self.recovering and all(other.number > batch.number for other in self.waiting):
            self.recovering = False

    def put_back(self, batch: Batch) -> None:
        """Moves a batch from flight to its place among those that wait."""
        self.in_flight.remove(batch)
        place = 0
        for other in self.waiting:
            if other.number > batch.number:
                break
            place += 1
        self.waiting.insert(place, batch)
        self.recovering = True
        if not batch.uncertain:
            # A later one may have been lost, in doubt, before this one turned out never to leave.
            self.mark_absent_from(batch)

    def replace(self, batch: Batch, parts: Sequence[Batch]) -> None:
        """Puts a batch in flight, which is in no log, back in parts."""
        self.put_back(batch)
        place = self.waiting.index(batch)
        del self.waiting[place]
        for part in reversed(parts):
            self.waiting.insert(place, part)
        # Nothing behind it is in a log either: all will be first sent again, behind the parts.
        for other in (*self.in_flight, *self.waiting):
            if other.number > batch.number:
                other.ordinal = -1

    def is_oldest(self, batch: Batch) -> bool:
        """Whether no batch before this one is unresolved."""
        return all(other.number >= batch.number for other in (*self.in_flight, *self.waiting))

    def mark_uncertain(self, batch: Batch) -> None:
        """Notes that `batch` may be in the log: unless one before it is known not to be."""
        batch.uncertain = all(
            other.uncertain for other in self.waiting if other.number < batch.number
        )

    def mark_absent_from(self, batch: Batch) -> None:
        """Notes that `batch` is in no log, and so nothing after it is: sequences are gapless."""
        for other in (*self.in_flight, *self.waiting):
            if other.number >= batch.number:
                other.uncertain = False

    def ends_sequence(self, batch: Batch) -> bool:
        """Whether no later batch has a sequence."""
        return batch.next_sequence == self.next_sequence

    def renumber(self, producer_id: int, epoch: int) -> None:
        """Starts again at sequence 0; nothing is in flight and nothing uncertain."""
        self.next_sequence = 0
        self.acked = False
        for batch in self.waiting:
            if batch.sequence != NO_SEQUENCE:
                batch.renumber(producer_id, epoch, self.next_sequence)
                self.next_sequence = batch.next_sequence
