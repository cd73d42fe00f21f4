"""The open batches to which `Producer.send` appends without any call, and the time they share.

`send` runs once per record, where a call costs 50 ns and an attribute 5. So the common record, a
value and nothing else, is appended by adding to the values and to two sums of the batch found here.
A batch counts as long as all of this holds:

- it is open and the record fits: sealing it sets `limit_bytes` to -1;
- it has no columns of keys and headers: a call that may add them removes it first;
- its clock is the producer's: the end of the loop's pass clears all batches;
- there is no serializer or partitioner to ask, and the producer is running: otherwise no batch is
  added.
"""

from __future__ import annotations

import asyncio

from millrace._clock import wall_ms
from millrace._producer.batch import Batch


class HotBatches:
    """By topic, in one pass of the event loop; set `loop` before `now_ms`."""

    __slots__ = ("_now_ms", "batches", "loop")

    def __init__(self) -> None:
        self.batches: dict[str, Batch] = {}
        self.loop: asyncio.AbstractEventLoop | None = None
        self._now_ms = 0

    def now_ms(self) -> int:
        """The time since the epoch; one reading serves all sends of a pass of the loop."""
        if not self._now_ms:
            assert self.loop is not None
            self._now_ms = wall_ms()
            self.loop.call_soon(self._end_pass)
        return self._now_ms

    def _end_pass(self) -> None:
        self._now_ms = 0
        self.batches.clear()
