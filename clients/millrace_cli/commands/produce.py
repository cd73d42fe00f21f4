"""`millrace produce`: records from lines, JSON or CSV, of files or of stdin.

Owns the flags, the order of sending and the summary. `formats.input_format` parses the lines.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace_cli.exits import Exit, InputError, run
from millrace_cli.formats.csv_flags import csv_flags
from millrace_cli.formats.input_format import Columns, Format, Reader
from millrace_cli.formats.input_notes import InputNotes
from millrace_cli.servers import DEFAULT_SERVERS, Servers

if TYPE_CHECKING:
    from millrace.producer import Producer

INTERRUPT_TIMEOUT_S = 5


class Codec(StrEnum):
    """Compression of batches."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    """The replicas that acknowledge a record."""

    ALL = "all"
    ONE = "1"
    NONE = "0"


Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[FILES]...",
        exists=True,
        dir_okay=False,
        allow_dash=True,
        help="Files to read, in order; - is stdin.  [default: stdin]",
    ),
]
KeySeparator = Annotated[
    str, typer.Option("--key-separator", "-K", help="Lines: the key is before the first separator.")
]
KeyField = Annotated[
    str, typer.Option("--key-field", "--key", "-k", help="JSON field or CSV column of the key.")
]
TimestampField = Annotated[
    str,
    typer.Option(
        help="JSON field or CSV column of the timestamp: ms since the epoch, or ISO 8601."
    ),
]

Partition = Annotated[
    int | None,
    typer.Option("--partition", "-p", min=0, help="Partition; by default, the key decides."),
]
Types = Annotated[
    str,
    typer.Option(
        metavar="'NAME TYPE, ...'",
        help="CSV: types of columns, as in 'temp double, year int'; the others are text.",
    ),
]
Infer = Annotated[
    bool,
    typer.Option("--infer", help="CSV: find the types of all columns in the whole of the files."),
]
NullTexts = Annotated[
    list[str] | None,
    typer.Option("--null", metavar="TEXT", help="CSV: a cell that is null; may be repeated."),
]


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to send to.")],
    files: Files = None,
    format_: Annotated[
        Format, typer.Option("--format", "-f", help="Format of the input.")
    ] = Format.LINES,
    key_separator: KeySeparator = "",
    key_field: KeyField = "",
    timestamp_field: TimestampField = "",
    types: Types = "",
    infer: Infer = False,
    null: NullTexts = None,
    partition: Partition = None,
    compression: Annotated[
        Codec, typer.Option("--compression", "-z", help="Compression of batches.")
    ] = Codec.NONE,
    acks: Annotated[Acks, typer.Option(help="Replicas that acknowledge a record.")] = Acks.ALL,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Send records to a topic, one per line, JSON object or CSV row.

    \b
    lines  the line is the value, without its end; an empty line is an empty value
    json   the line is a JSON object, sent unchanged; empty lines are skipped
    csv    the first row names the columns; a row is sent as a JSON object, all text unless columns
           have types; a cell that does not fit its type is sent as text, with a warning

    A key field with text is the key, unchanged; another value is the key as JSON; null or a missing
    field means no key. Retention uses timestamps: the broker soon deletes records that are older
    than the topic's retention.ms.

    Prints the number of sent records to stderr. A failure leaves the beginning of the input sent.
    """
    if key_separator and format_ is not Format.LINES:
        raise typer.BadParameter("--key-separator is for lines; name the field with --key-field")
    if (key_field or timestamp_field) and format_ is Format.LINES:
        raise typer.BadParameter("lines have no fields: give --format json or --format csv")
    csv_types = csv_flags(format_, types, infer=infer, null_texts=null or [], files=files or [])
    notes = InputNotes()
    options: dict[str, Any] = {
        "compression": compression.value,
        "acks": "all" if acks is Acks.ALL else int(acks),
    }

    reader = partial(
        Reader,
        format_=format_,
        key_separator=_unescaped(key_separator),
        key_field=key_field,
        timestamp_field=timestamp_field,
        types=csv_types,
        notes=notes,
    )
    producing = _Run(topic, files or [Path("-")], partition, reader, format_ is Format.CSV, notes)
    run(producing.run(servers, options))


@dataclass
class _Run:
    """One run of the command, with its totals."""

    topic: str
    files: list[Path]
    partition: int | None
    reader: Callable[[str], Reader]
    quoted: bool
    notes: InputNotes
    records: int = 0
    size: int = 0
    """Bytes of keys and values."""

    async def run(self, servers: str, options: dict[str, Any]) -> Exit:
        """Sends all inputs; prints the totals after success and after failure."""
        import asyncio

        from millrace.producer import Producer

        started = time.monotonic()
        async with Producer(servers, client_id="millrace-cli", **options) as producer:
            reporting = asyncio.create_task(_report_retries(producer))
            try:
                with _progress(self.files) as on_read:
                    for path in self.files:
                        await self._send_input(producer, path, on_read)
            finally:
                reporting.cancel()
                self._summarize(time.monotonic() - started)
        return Exit.OK

    async def _send_input(
        self, producer: Producer, path: Path, on_read: Callable[[int], None]
    ) -> None:
        from millrace_cli.formats.input_lines import Lines, file_chunks, stdin_chunks

        is_stdin = str(path) == "-"
        name = "stdin" if is_stdin else str(path)
        chunks: AsyncIterator[bytes] = stdin_chunks() if is_stdin else file_chunks(path, on_read)
        lines = Lines(quoted=self.quoted)
        reader = self.reader(name)
        try:
            async for chunk in chunks:
                first = lines.count + 1
                await self._send_lines(producer, reader, lines.feed(chunk), first)
            first = lines.count + 1
            await self._send_lines(producer, reader, lines.end(), first)
        except OSError as error:
            if error.filename is None:
                raise
            raise InputError(f"{name}: {error.strerror}") from None

    async def _send_lines(
        self, producer: Producer, reader: Reader, lines: list[bytes], first_line: int
    ) -> None:
        if not lines:
            return
        import asyncio

        columns = reader.read(lines, first_line)
        if not columns.values:
            return
        sending = asyncio.ensure_future(
            producer.send_many(
                self.topic,
                columns.values,
                keys=columns.keys,
                timestamps_ms=columns.timestamps_ms,
                partition=self.partition,
            )
        )
        try:
            await asyncio.shield(sending)
        except asyncio.CancelledError:
            # ^C: wait for the acks of records that are with the producer, and count them.
            await asyncio.wait([sending], timeout=INTERRUPT_TIMEOUT_S)
            if sending.done() and sending.exception() is None:
                self._count(columns)
            raise
        self._count(columns)

    def _count(self, columns: Columns) -> None:
        self.records += len(columns.values)
        self.size += sum(map(len, columns.values)) + sum(len(k or b"") for k in columns.keys or ())

    def _summarize(self, elapsed_s: float) -> None:
        for line in self.notes.lines():
            print(f"millrace: {line}", file=sys.stderr)
        rate = f"{self.records / elapsed_s:,.0f} records/s" if elapsed_s else "-"
        print(
            f"sent {self.records:,} records, {self.size:,} bytes in {elapsed_s:.2f} s ({rate})",
            file=sys.stderr,
        )


async def _report_retries(producer: Producer) -> None:
    """Prints the reason of a retry, so that the user knows why the command waits."""
    from millrace.events import EventKind

    async for event in producer.events():
        if event.kind is EventKind.RETRYING:
            print(f"millrace: {event.sentence}", file=sys.stderr, flush=True)


@contextmanager
def _progress(files: list[Path]) -> Iterator[Callable[[int], None]]:
    """A progress bar over the bytes of files, on a terminal."""
    if not sys.stderr.isatty() or any(str(path) == "-" for path in files):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=sum(path.stat().st_size for path in files))
        yield lambda size: progress.advance(task, size)


def _unescaped(text: str) -> bytes:
    r"""The separator's bytes; `\t` stands for a tab."""
    return text.replace("\\t", "\t").encode()
