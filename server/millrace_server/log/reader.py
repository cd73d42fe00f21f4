"""What a log answers about what is in it: ranges of batches, pieces of a range, points in time.

Owns the bounds of each question. Refuses to know the caller; a high watermark is the end of a
range. The answers are made by `reading`, `splitting`, `timestamps` and `scrub`.
"""

from __future__ import annotations

from collections.abc import Callable

from millrace_server.log.durability import Durability
from millrace_server.log.errors import OffsetOutOfRange
from millrace_server.log.integrity.corrupt_ranges import CorruptRange
from millrace_server.log.reading import LogRead, read_batches
from millrace_server.log.scrub import DurableSegment, durable_segments
from millrace_server.log.splitting import Piece, split
from millrace_server.log.state import LogState
from millrace_server.log.timestamps import Candidate, first_candidate, largest_timestamp


class LogReader:
    """Reads one log, also one that has failed; not one that is closed."""

    __slots__ = ("_durability", "_state")

    def __init__(self, state: LogState, durability: Durability) -> None:
        self._state = state
        self._durability = durability

    def read(self, offset: int, *, max_bytes: int, end_offset: int) -> LogRead:
        """Finds whole batches from the one that holds `offset` on, without touching their bytes.

        `end_offset` is exclusive and a batch boundary: the high watermark. At most `max_bytes`,
        except that one batch is always given whole; never beyond one segment, and never beyond
        a range that is known to be corrupt. Nothing is given for `end_offset <= offset`. Raises
        `OffsetOutOfRange`, `CorruptRecords`, `CorruptLog` and `OSError`.
        """
        state = self._state
        if not state.start_offset <= offset <= state.end_offset:
            raise OffsetOutOfRange(offset, state.start_offset, state.end_offset)
        if state.is_closed:
            raise state.stopped()
        if offset >= end_offset:
            return LogRead(None, offset)
        return read_batches(
            state.chain,
            offset,
            max_bytes=max_bytes,
            end_offset=end_offset,
            known_end=self._durability.durable_end,
        )

    def split(
        self, start_offset: int, *, end_offset: int, piece_bytes: int, pieces_max: int
    ) -> list[Piece]:
        """Cuts a range into pieces of about `piece_bytes`, by the indexes and without a read.

        One that is not empty gets one piece at least, but not always all: see `splitting.split`.
        Raises `OffsetOutOfRange`, `CorruptLog` and `OSError`.
        """
        state = self._state
        for offset in (start_offset, end_offset):
            if not state.start_offset <= offset <= state.end_offset:
                raise OffsetOutOfRange(offset, state.start_offset, state.end_offset)
        if state.is_closed:
            raise state.stopped()
        if start_offset >= end_offset:
            return []
        return split(
            state.chain.between(start_offset, end_offset),
            start_offset=start_offset,
            end_offset=end_offset,
            piece_bytes=piece_bytes,
            pieces_max=pieces_max,
        )

    def candidate_for_timestamp(
        self, timestamp_ms: int, *, from_offset: int, end_offset: int
    ) -> Candidate | None:
        """Finds the first batch in `[from_offset, end_offset)` that may have a record not older.

        "First" by offset: where timestamps are out of order, later records may be older. Raises
        `CorruptLog` and `OSError`.
        """
        return first_candidate(
            self._state.chain.segments,
            timestamp_ms,
            start_offset=max(from_offset, self._state.start_offset),
            end_offset=end_offset,
        )

    def largest_timestamp(self, *, end_offset: int) -> int:
        """The largest timestamp before `end_offset`, -1 if there is none."""
        return largest_timestamp(
            self._state.chain.segments,
            start_offset=self._state.start_offset,
            end_offset=end_offset,
        )

    def durable_segments(self) -> list[DurableSegment]:
        """The durable segments, oldest first, for the scrub."""
        return durable_segments(self._state.chain, self._durability.durable_end)

    def watch_corruption(self, on_corruption: Callable[[CorruptRange], None]) -> None:
        """Has `on_corruption` called once for each corrupt range that is found."""
        self._state.chain.on_corruption = on_corruption
