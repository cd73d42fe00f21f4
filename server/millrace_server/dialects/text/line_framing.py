"""How a connection's bytes are cut into lines (wire_spec.md W-8).

Knows the line feed and nothing of commands. The bytes are `FrameReader`'s.
"""

from __future__ import annotations

from millrace_wire.frame_reader import FrameReader, FramingError

_LINE_FEED = 10


class LineLengthError(FramingError):
    """The peer sent a line that is longer than allowed, finished or not."""

    def __init__(self, line_bytes_max: int) -> None:
        super().__init__(f"a line of more than {line_bytes_max} bytes")


def next_line(reader: FrameReader, *, line_bytes_max: int) -> bytes | None:
    """The next line without its line feed (and carriage return), or None.

    Raises `LineLengthError`.
    """
    size = reader.find(_LINE_FEED)
    if (reader.unread_bytes if size < 0 else size) > line_bytes_max:
        raise LineLengthError(line_bytes_max)
    return None if size < 0 else reader.take(size + 1)[:-1].removesuffix(b"\r")


def last_line(reader: FrameReader) -> bytes | None:
    """The bytes before the end of the input, as a line without a line feed; None without any."""
    line = reader.take(reader.unread_bytes)
    return line.removesuffix(b"\r") if line else None
