"""`millrace dissect`: annotated bytes of a file or a pipe.

Owns the choice of a dissector and the exit code. `millrace_protocol.dissect` explains the bytes.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_cli.exits import Exit, ended, output_closed, output_failed
from millrace_cli.json_output import Json, print_json

if TYPE_CHECKING:
    from millrace_protocol.dissect import Limits, Span

HEX_BYTES_MAX = 64 << 20
"""Longest text. The dissector holds it in memory several times."""


class Kind(StrEnum):
    """The format of the bytes."""

    AUTO = "auto"
    HEX = "hex"
    PCAP = "pcap"
    SEGMENT = "segment"
    INDEX = "index"
    TIMEINDEX = "timeindex"
    STREAM = "stream"
    EXCHANGE = "exchange"


def dissect(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="File to read.  [default: stdin]")
    ] = None,
    kind: Annotated[
        Kind, typer.Option("--as", help="Format; auto: by the name, then by the content.")
    ] = Kind.AUTO,
    records_max: Annotated[int, typer.Option(min=0, help="Most records of one batch.")] = 100,
    as_json: Json = False,
) -> None:
    """Explain bytes: hex, a capture (pcap, pcapng), a segment, a metadata snapshot or an index.

    Hex may be plain digits or the output of xxd, hexdump -C, or tcpdump -X. `stream` is the raw
    bytes of one direction of a connection, `exchange` a file of `save` in `millrace nc`. The exit
    code is 1 for malformed bytes; the output has all bytes before them. --json prints an object in
    a line for each frame, batch or entry.
    """
    raise typer.Exit(_dissect(file, kind, records_max, as_json=as_json))


def _dissect(file: Path | None, kind: Kind, records_max: int, *, as_json: bool) -> Exit:
    from millrace_cli.formats.exchange import ExchangeError
    from millrace_protocol.dissect import CaptureError, HexError, Limits

    try:
        data = _read(file)
    except OSError as error:
        return ended(Exit.USAGE, f"{file}: {error.strerror}")
    try:
        path = str(file.absolute()) if file else ""
        spans = _spans(data, kind, path, Limits(records_max=records_max))
        return _print_json(spans) if as_json else _print(spans)
    except (CaptureError, HexError, ExchangeError) as error:
        return ended(Exit.INPUT, f"{file or 'stdin'}: {error}")
    except BrokenPipeError:
        return output_closed()
    except OSError as error:
        return output_failed(error)


def _read(file: Path | None) -> memoryview:
    if file is None:
        return memoryview(sys.stdin.buffer.read())
    with file.open("rb") as opened:
        try:
            return memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
        except ValueError:
            # Empty, or not a regular file: a process substitution of the shell is a pipe.
            return memoryview(opened.read())


def _spans(data: memoryview, kind: Kind, name: str, limits: Limits) -> Iterator[Span]:
    from millrace_protocol import dissect as dissector

    match _by_content(data, name) if kind is Kind.AUTO else kind:
        case Kind.HEX:
            return dissector.dissect_hex(_text(data), limits=limits)
        case Kind.EXCHANGE:
            return _exchange_spans(_text(data), limits)
        case Kind.PCAP:
            segments = dissector.read_segments(data)
            return (s.titled() for s in dissector.dissect_segments(segments, limits=limits))
        case Kind.SEGMENT:
            values = dissector.dissect_metadata_value if dissector.is_metadata_file(name) else None
            return dissector.dissect_segment(data, limits=limits, values=values)
        case Kind.INDEX:
            return dissector.dissect_index(data, base_offset=dissector.base_offset_of(name))
        case Kind.TIMEINDEX:
            return dissector.dissect_time_index(data, base_offset=dissector.base_offset_of(name))
        case _:
            return dissector.dissect_frames(data, limits=limits)


def _by_content(data: memoryview, name: str) -> Kind:
    from millrace_cli.formats.exchange import TITLE
    from millrace_protocol.dissect import HexError, is_capture, is_segment, read_hex

    for ending, kind in _ENDINGS.items():
        if name.endswith(ending):
            return kind
    if is_capture(data):
        return Kind.PCAP
    if is_segment(data):
        return Kind.SEGMENT
    if bytes(data[: len(TITLE)]) == TITLE.encode():
        return Kind.EXCHANGE
    try:
        if len(data) <= HEX_BYTES_MAX and any(read_hex(str(data, "ascii"))):
            return Kind.HEX
    except (UnicodeDecodeError, HexError):
        pass
    return Kind.STREAM


_ENDINGS = {
    ".log": Kind.SEGMENT,
    ".checkpoint": Kind.SEGMENT,
    ".timeindex": Kind.TIMEINDEX,
    ".index": Kind.INDEX,
}


def _text(data: memoryview) -> str:
    return str(data, "utf-8", "replace")


def _exchange_spans(text: str, limits: Limits) -> Iterator[Span]:
    from millrace_cli.formats.exchange import read_exchange
    from millrace_protocol.dissect import dissect_frames

    for transfer in read_exchange(text):
        yield from dissect_frames(transfer.data, limits=limits)


def _print(spans: Iterator[Span]) -> Exit:
    from millrace_cli.colours import paint, wants_colour
    from millrace_protocol.dissect import render

    colour = wants_colour()
    faults = 0
    for span in spans:
        lines = render([span])
        for line in paint(lines) if colour else lines:
            print(line)
        faults += sum(1 for _ in span.faults())
    sys.stdout.flush()
    return Exit.REFUSED if faults else Exit.OK


def _print_json(spans: Iterator[Span]) -> Exit:
    from millrace_cli.formats.span_json import span_json

    faults = 0
    for span in spans:
        print_json(span_json(span))
        faults += sum(1 for _ in span.faults())
    sys.stdout.flush()
    return Exit.REFUSED if faults else Exit.OK
