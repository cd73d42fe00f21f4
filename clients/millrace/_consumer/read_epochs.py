"""The leader epochs of the records that a consumer has read (KIP-320).

Owns the part of a partition's epoch table that its fetches have shown, and where that parts from a
leader's. Pure. Source: wire_spec.md W-4.37.2.
"""

from __future__ import annotations

from millrace_protocol.records import batch_epochs

NO_EPOCH = -1


class ReadEpochs:
    """`(epoch, offset of the first record read in it)`, both rising strictly."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[tuple[int, int]] = []

    @classmethod
    def committed(cls, epoch: int, offset: int) -> ReadEpochs:
        """What a commit tells: the epoch of the record before its offset, if it is known."""
        found = cls()
        if epoch != NO_EPOCH and offset > 0:
            found._entries.append((epoch, offset - 1))
        return found

    def note(self, batches: bytes | memoryview, *, from_offset: int, leader_epoch: int) -> None:
        """Takes batches that follow what was read; none is of a later epoch than the leader's.

        So batches behind one of the leader's epoch, if that is known, need not be looked at.
        """
        entries = self._entries
        if entries and entries[-1][0] >= leader_epoch != NO_EPOCH:
            return
        for base_offset, epoch in batch_epochs(batches):
            if not entries or epoch > entries[-1][0]:
                entries.append((epoch, max(base_offset, from_offset)))

    def before(self, offset: int) -> int:
        """The epoch of the record before `offset`, `NO_EPOCH` if none was read there."""
        for epoch, start_offset in reversed(self._entries):
            if start_offset < offset:
                return epoch
        return NO_EPOCH

    def parting(self, epoch: int, end_offset: int) -> int:
        """Where the leader's log parts from what was read, if not later: the leader says where the
        newest of its epochs ends that is not above the one asked for."""
        for read_epoch, start_offset in self._entries:
            if read_epoch > epoch:
                return min(start_offset, end_offset)
        return end_offset

    def truncate_to(self, offset: int) -> None:
        """Forgets what was read from `offset` on."""
        self._entries = [entry for entry in self._entries if entry[1] < offset]

    def trim_to(self, offset: int) -> None:
        """Forgets the epochs that end at or before `offset`, but for that of the record before."""
        entries = self._entries
        while len(entries) > 1 and entries[1][1] < offset:
            del entries[0]

    def clear(self) -> None:
        """Forgets all."""
        self._entries.clear()
