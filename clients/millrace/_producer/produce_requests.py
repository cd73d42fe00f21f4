"""The next requests of a producer: the outcome of draining its queues.

Plain values; `produce_queue` makes them and `sender` carries them out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from millrace._producer.batch import Batch


@dataclass(frozen=True, slots=True)
class Send:
    """A request for one broker: at most one batch of each partition.

    Leaves in the order given; ends in `on_answer`, `on_posted` or `on_request_failed`.
    """

    node_id: int
    batches: tuple[Batch, ...]


@dataclass(slots=True)
class Drained:
    """The requests to send now, and the time of the next look (`deadline_ms`; None: no timer).

    `settled` batches are for their waiters; `unknown_topics` need fresh metadata; `wants_epoch`
    is the `(producer_id, epoch)` to ask InitProducerId with.
    """

    sends: list[Send] = field(default_factory=list)
    settled: list[Batch] = field(default_factory=list)
    unknown_topics: set[str] = field(default_factory=set)
    wants_epoch: tuple[int, int] | None = None
    deadline_ms: int | None = None

    def by(self, deadline_ms: int) -> None:
        """Looks again at `deadline_ms` at the latest."""
        if self.deadline_ms is None or deadline_ms < self.deadline_ms:
            self.deadline_ms = deadline_ms


class RequestDraft:
    """A request that is not complete yet."""

    __slots__ = ("batches", "size_bytes")

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.size_bytes = 0

    def add(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.size_bytes += batch.size_bytes
