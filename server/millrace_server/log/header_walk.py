"""The batches of a segment, one after the other, by their headers alone.

Owns what lengths and offsets can be true. Refuses to check CRCs, which `integrity` does, and to
know how bytes are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from millrace_protocol.records import HEADER_SIZE, batch_extent, batch_span
from millrace_server.log.errors import CorruptLog

WINDOW_BYTES: Final = 4096
"""With the default index interval, all headers between two entries lie in one such window."""


class Span(NamedTuple):
    """One batch as the log sees it: where it lies and what it covers."""

    position: int
    size_bytes: int
    base_offset: int
    leader_epoch: int
    last_offset: int
    max_timestamp: int


def walk_headers(
    read: Callable[[int, int], bytes],
    path: Callable[[], str],
    position: int,
    next_offset: int,
    end_position: int,
    end_offset: int,
    *,
    is_dense: bool,
    window_bytes: int,
) -> Iterator[Span]:
    """Yields the batches from `position` to `end_position`, all of them below `end_offset`.

    `read(size_bytes, position)` reads the file at `path()`. With `is_dense` every batch
    continues the one before. Raises `CorruptLog` where a length or an offset cannot be true.
    """
    window, window_position = b"", position
    while position < end_position:
        at = position - window_position
        if at + HEADER_SIZE > len(window):
            window = read(min(window_bytes, end_position - position), position)
            window_position, at = position, 0
        size_bytes = batch_extent(window, at)[1] if len(window) >= HEADER_SIZE else 0
        if not HEADER_SIZE <= size_bytes <= end_position - position:
            raise CorruptLog(
                path(), position, "no whole batch where one was written", offset=next_offset
            )
        base_offset, _, leader_epoch, last_offset, max_timestamp = batch_span(window, at)
        if not next_offset <= base_offset <= last_offset < end_offset or (
            is_dense and base_offset != next_offset
        ):
            raise CorruptLog(
                path(),
                position,
                f"offsets {base_offset} to {last_offset}, and what is there begins with "
                f"{next_offset} and ends before {end_offset}",
                offset=next_offset,
            )
        next_offset = last_offset + 1
        yield Span(position, size_bytes, base_offset, leader_epoch, last_offset, max_timestamp)
        position += size_bytes
