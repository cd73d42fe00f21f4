"""What every client library is asked to do: produce, consume, send and receive on a schedule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from benchmarks.peers.task import Task

TIMEOUT_S = 30.0
"""How long a client waits for records or acks that do not come."""


class Stalled(Exception):
    """Records or acks did not come within `TIMEOUT_S`."""


@dataclass(slots=True)
class Taken:
    """Records that a consumer has taken, and the bytes of their values."""

    records: int = 0
    value_bytes: int = 0
    own_s: float = 0.0
    """The time by the program's own clock, where it has one that leaves out its start."""


class Client(ABC):
    """One client of one round: opened as a producer or as a consumer, used, closed."""

    has_own_clock: ClassVar[bool] = False
    """Whether it is a program that times itself, without its start, and checks no values."""

    def __init__(self, task: Task) -> None:
        self.task = task

    @abstractmethod
    async def open_producer(self) -> None:
        """Connects a producer."""

    @abstractmethod
    async def open_consumer(self) -> None:
        """Connects a consumer to the task's partitions, from their starts."""

    @abstractmethod
    async def close(self) -> None:
        """Ends what was opened."""

    @abstractmethod
    async def produce(
        self, values: Sequence[bytes], count: int, partition: int | None = None
    ) -> float:
        """Sends `count` values of the cycle and waits for all acks, by the task's method.

        Returns the seconds that it took by a clock of its own, or 0 if it has none.
        """

    @abstractmethod
    async def consume(self, least: int) -> Taken:
        """Takes records, at least `least` of them, by the task's method, reading their values."""

    @abstractmethod
    async def send(self, values: Sequence[bytes]) -> None:
        """Sends these records now, one call each, with the client's back-pressure."""

    @abstractmethod
    async def flush(self) -> None:
        """Waits for the acks of all records that were sent."""

    @abstractmethod
    def receive(self) -> AsyncIterator[Sequence[bytes]]:
        """The values that arrive, as soon as they do."""

    async def join(self) -> None:
        """Joins the task's group and returns at the first record of an own partition."""
        raise NotImplementedError(f"{type(self).__name__} has no groups that share partitions")

    async def attend(self) -> None:
        """Goes on as a member of the group: takes records until it is cancelled."""
        raise NotImplementedError(f"{type(self).__name__} has no groups that share partitions")
