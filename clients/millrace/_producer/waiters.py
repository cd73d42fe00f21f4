"""Callers of a producer that wait: for a batch to be settled, or for room in the buffer.

Owns their futures, and the event that wakes the sender for them. Refers to nothing of the producer,
so that a batch, which refers to it, keeps no producer in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from millrace._owner import Owner
from millrace._producer.batch import Batch


class Waiters:
    """The callers that wait for one producer; the `owner` of its batches.

    Set `sender_wakeup` to have the sender look again. `room_is_wanted` has it send what still
    lingers.
    """

    def __init__(self) -> None:
        self.sender_wakeup = asyncio.Event()
        self.room_is_wanted = False
        self.owner: Owner | None = None
        self._for_room: list[asyncio.Future[None]] = []

    async def settle(self, batch: Batch) -> None:
        """Waits until a batch is settled, and has it sent without lingering."""
        batch.observed = True
        if not batch.flush_now:
            batch.flush_now = True
            self.sender_wakeup.set()
        await self.settled(batch)

    async def settle_after_linger(self, batch: Batch) -> None:
        """Waits until a batch is settled, which is sent when it is full or has lingered."""
        batch.observed = True
        await self.settled(batch)

    async def settled(self, batch: Batch) -> None:
        """Waits until a batch is settled."""
        if batch.settled:
            return
        if self.owner is not None:
            self.owner.check()
        # One future for each caller: cancelling one must not cancel the others.
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        batch.waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in batch.waiters:
                batch.waiters.remove(waiter)
            raise

    async def room(self) -> None:
        """Waits until there is room for any record, and no earlier call's records wait for it."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._for_room.append(waiter)
        self.room_is_wanted = True
        self.sender_wakeup.set()
        await waiter

    def wake_settled(self, batches: Iterable[Batch]) -> None:
        """Wakes the callers that wait for these batches, which are settled."""
        for batch in batches:
            for waiter in batch.waiters:
                if not waiter.done():
                    waiter.set_result(None)
            batch.waiters.clear()

    def wake_room(self) -> None:
        """Wakes the callers that wait for room; each looks again."""
        waiters, self._for_room = self._for_room, []
        self.room_is_wanted = False
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
