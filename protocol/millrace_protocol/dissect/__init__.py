"""The dissector: streams, captures, segment and index files, annotated byte by byte.

    >>> from millrace_protocol.framing import request_frame
    >>> frame = request_frame(api=18, version=0, correlation_id=7, client_id=b"", body=b"")
    >>> next(dissect_frames(frame)).fault
    'int16 takes 2 bytes, 0 follow'

Everything comes from the declarations that the codec is made of. No dissector raises for bad
bytes; each takes `Limits` on what it shows. `dissect` chooses by name and content.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace_protocol.dissect.body import dissect_body
from millrace_protocol.dissect.captures import (
    LINK_ETHERNET,
    LINK_RAW,
    CaptureError,
    Segment,
    is_capture,
    read_packet,
    read_segments,
)
from millrace_protocol.dissect.conversations import Sighting, dissect_segments
from millrace_protocol.dissect.files import (
    base_offset_of,
    dissect_index,
    dissect_segment,
    dissect_time_index,
    is_segment,
)
from millrace_protocol.dissect.frames import dissect_frame, dissect_frames, frame_size
from millrace_protocol.dissect.hexdump import HexError, read_hex
from millrace_protocol.dissect.metadata import (
    SNAPSHOT_SUFFIX,
    dissect_metadata_value,
    is_metadata_file,
)
from millrace_protocol.dissect.render import render
from millrace_protocol.dissect.span import DEFAULT_LIMITS, Buffer, Limits, Span

__all__ = [
    "CaptureError",
    "HexError",
    "Limits",
    "Segment",
    "Sighting",
    "Span",
    "base_offset_of",
    "dissect",
    "dissect_body",
    "dissect_frame",
    "dissect_frames",
    "dissect_hex",
    "dissect_index",
    "dissect_metadata_value",
    "dissect_segment",
    "dissect_segments",
    "dissect_time_index",
    "frame_size",
    "is_capture",
    "is_metadata_file",
    "is_segment",
    "read_hex",
    "read_segments",
    "render",
]


def dissect(
    data: Buffer, *, file_name: str = "", limits: Limits = DEFAULT_LIMITS
) -> Iterator[Span]:
    """The spans of a file, chosen by its name's ending, and else by how it begins.

    `.log`, `.index` and `.timeindex` are files of a partition, `.checkpoint` is a snapshot of the
    metadata; what opens like a capture or like a segment is one; anything else is a stream of
    frames. The path of a file of `__cluster_metadata` has its records explained. Every span has
    its own buffer. Raises `CaptureError`.
    """
    if is_metadata_file(file_name) and file_name.endswith((".log", SNAPSHOT_SUFFIX)):
        return dissect_segment(data, limits=limits, values=dissect_metadata_value)
    if file_name.endswith(".log"):
        return dissect_segment(data, limits=limits)
    if file_name.endswith(".timeindex"):
        return dissect_time_index(data, base_offset=base_offset_of(file_name))
    if file_name.endswith(".index"):
        return dissect_index(data, base_offset=base_offset_of(file_name))
    if is_capture(data):
        return (
            sighting.titled() for sighting in dissect_segments(read_segments(data), limits=limits)
        )
    if is_segment(data):
        return dissect_segment(data, limits=limits)
    return dissect_frames(data, limits=limits)


def dissect_hex(text: str, *, limits: Limits = DEFAULT_LIMITS) -> Iterator[Span]:
    """The spans of hex as people paste it: a stream, record batches, or the packets of a
    `tcpdump -X` or `-XX`.

    Raises `HexError` when it is no hex.
    """
    pieces = read_hex(text)
    for link_type in (LINK_RAW, LINK_ETHERNET):
        segments = [read_packet(piece, link_type) for piece in pieces]
        if all(segments):
            found = (segment for segment in segments if segment is not None)
            return (sighting.titled() for sighting in dissect_segments(found, limits=limits))
    data = b"".join(pieces)
    if is_segment(data):
        return dissect_segment(data, limits=limits)
    return dissect_frames(data, limits=limits)
