"""Answers in the order of their requests, whatever order they become ready in.

Owns the places of answers that are due (slots) and what they hold in memory meanwhile. Knows
nothing of how an answer is made or sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain

from millrace_server.environment.seams import FileSlice, Reply, ReplyPart
from millrace_server.net.output import Output

MOVED_PARTS = 2_000
"""Given to the output at once, in some 300 us. Many answers of thousands of parts each may have
waited for one."""


class Slot:
    """The place of one answer. `complete` means nothing more will be added to it."""

    __slots__ = ("complete", "parts", "request_bytes")

    def __init__(self, request_bytes: int) -> None:
        self.request_bytes = request_bytes
        self.parts: Reply = []
        self.complete = False


class ResponseQueue:
    """The slots of one connection.

    Only the first slot's parts go to the output; those of later slots wait. `held_bytes` is
    what requests without an answer and answers before their turn hold in memory.
    """

    __slots__ = ("_output", "_slots", "held_bytes")

    def __init__(self, output: Output) -> None:
        self._output = output
        self._slots: deque[Slot] = deque()
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._slots)

    def reply(self, parts: Reply) -> None:
        """Adds an answer that is ready."""
        if not self._slots:
            self._output.append(parts)
            return
        slot = self.open(0)
        self.add(slot, parts)
        slot.complete = True

    def open(self, request_bytes: int) -> Slot:
        """Adds the place of an answer that is not ready."""
        slot = Slot(request_bytes)
        self._slots.append(slot)
        self.held_bytes += request_bytes
        return slot

    def add(self, slot: Slot, parts: Reply) -> None:
        """Puts parts into a slot; they go on at once when it is the first."""
        if slot is self._slots[0]:
            self._output.append(parts)
        else:
            slot.parts.extend(parts)
            self.held_bytes += _memory_bytes(parts)

    def complete(self, slot: Slot, parts: Reply) -> None:
        """Adds the last parts of a slot and moves on what waited for it."""
        self.add(slot, parts)
        slot.complete = True
        self.move_on()

    @property
    def is_behind(self) -> bool:
        """Whether answers that are ready and next wait for another `move_on`."""
        return bool(self._slots) and self._slots[0].complete

    def move_on(self) -> None:
        """Gives the output the answers that are next, until these are `MOVED_PARTS` or more."""
        slots = self._slots
        moved = 0
        while slots and slots[0].complete and moved < MOVED_PARTS:
            self.held_bytes -= slots.popleft().request_bytes
            if slots and slots[0].parts:
                waited, slots[0].parts = slots[0].parts, []
                self.held_bytes -= _memory_bytes(waited)
                self._output.append(waited)
                moved += len(waited)

    def close(self) -> Iterator[ReplyPart]:
        """Returns what did not get its turn, whose slices the caller releases."""
        left = chain.from_iterable([slot.parts for slot in self._slots])
        self._slots.clear()
        self.held_bytes = 0
        return left


def _memory_bytes(parts: Iterable[ReplyPart]) -> int:
    return sum(len(part) for part in parts if not isinstance(part, FileSlice))
