"""`millrace produce`: records from lines, JSON, CSV or whole files, of files or of stdin.

Owns the flags. `record_producer` sends, and `formats.input_format` parses.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from millrace_cli.client_settings import (
    Acks,
    AcksFlag,
    Codec,
    Compression,
    Settings,
    producer_settings,
)
from millrace_cli.exits import Exit, run
from millrace_cli.formats.csv_flags import csv_flags
from millrace_cli.formats.input_format import Format, Reader, timestamp_ms
from millrace_cli.formats.input_notes import InputNotes
from millrace_cli.servers import (
    DEFAULT_BROKER_TIMEOUT_S,
    DEFAULT_SERVERS,
    BrokerTimeout,
    Servers,
)

Files = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE", help="Files to read, in order; - is stdin.  [default: stdin]"),
]
Delimiter = Annotated[
    str,
    typer.Option(
        "--delimiter",
        "-D",
        metavar="TEXT",
        help=r"Lines: the end of a record, such as \0 or \r\n.",
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
Timestamp = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="The timestamp of every record: ms, or ISO 8601."),
]
HeaderFlags = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        "-H",
        metavar="NAME=VALUE",
        help="A header of every record; NAME alone has a null value. May be repeated.",
    ),
]
Tombstones = Annotated[
    bool,
    typer.Option("--tombstones", "-Z", help="Lines, file: send an empty value as null."),
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
SummaryJson = Annotated[
    bool,
    typer.Option("--json", "-J", help="Print the summary to stdout as JSON, not to stderr."),
]

PRODUCE_HELP = """Send records to a topic, one per line, JSON object, CSV row or file.

\b
lines          the line is the value, without its end; an empty line is an empty value
json           the line is a JSON object, sent unchanged; empty lines are skipped
json-envelope  the line is a JSON object as millrace consume --json prints it: key, value,
               headers and timestamp become those of the record
csv            the first row names the columns; a row is sent as a JSON object, all text
               unless columns have types; a cell that does not fit its type is sent as text,
               with a warning
file           each file is one value, byte by byte

A key field with text is the key, unchanged; another value is the key as JSON; null or a missing
field means no key. Retention uses timestamps: the broker soon deletes records that are older than
the topic's retention.ms.

Prints the number of acknowledged records to stderr, or with --json to stdout. A failure leaves the
beginning of the input sent. After ^C or SIGTERM the command sends what it has read, and waits up to
5 seconds for the acks. It ends when a record is not acknowledged within --broker-timeout.
"""


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to send to.")],
    files: Files = None,
    format_: Annotated[
        Format, typer.Option("--format", "-f", help="Format of the input.")
    ] = Format.LINES,
    delimiter: Delimiter = r"\n",
    key_separator: KeySeparator = "",
    key_field: KeyField = "",
    timestamp_field: TimestampField = "",
    timestamp: Timestamp = None,
    header: HeaderFlags = None,
    tombstones: Tombstones = False,
    types: Types = "",
    infer: Infer = False,
    null: NullTexts = None,
    partition: Partition = None,
    compression: Compression = Codec.NONE,
    acks: AcksFlag = Acks.ALL,
    setting: Settings = None,
    broker_timeout_s: BrokerTimeout = DEFAULT_BROKER_TIMEOUT_S,
    as_json: SummaryJson = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Checks the flags and runs the command; `PRODUCE_HELP` describes it."""
    names = files or ["-"]
    for name in names:
        _check_file(name)
    _check_format(format_, delimiter, key_separator, key_field or timestamp_field, tombstones)
    csv_types = csv_flags(format_, types, infer=infer, null_texts=null or [], files=files or [])
    notes = InputNotes()
    reader = partial(
        Reader,
        format_=format_,
        key_separator=_bytes("--key-separator", key_separator),
        key_field=key_field,
        timestamp_field=timestamp_field,
        empty_is_null=tombstones,
        types=csv_types,
        notes=notes,
    )
    end = _bytes("--delimiter", delimiter)
    headers = tuple(_header(text) for text in header or ())
    time_ms = None if timestamp is None else _timestamp_ms(timestamp, timestamp_field)
    settings = producer_settings(setting, compression, acks, broker_timeout_s)

    async def work() -> Exit:
        from millrace_cli.record_producer import RecordProducer

        return await RecordProducer(
            *(topic, names, partition, format_, end, reader, notes, headers, time_ms, settings),
            as_json=as_json,
        ).run(servers)

    run(work())


def _check_format(
    format_: Format, delimiter: str, key_separator: str, field: str, tombstones: bool
) -> None:
    if format_ is not Format.LINES and (key_separator or delimiter != r"\n"):
        raise typer.BadParameter(
            "--key-separator and --delimiter are for lines; --key-field names a field"
        )
    if not delimiter:
        raise typer.BadParameter("--delimiter is empty; --format file sends a file as one record")
    if field and format_ not in (Format.JSON, Format.CSV):
        raise typer.BadParameter(f"{format_} has no fields: give --format json or --format csv")
    if tombstones and format_ not in (Format.LINES, Format.FILE):
        raise typer.BadParameter(f"-Z is for lines and file; {format_} has a null of its own")


def _check_file(name: str) -> None:
    if name == "-":
        return
    path = Path(name)
    if not path.exists():
        raise typer.BadParameter(f"{name}: there is no such file")
    if path.is_dir():
        raise typer.BadParameter(f"{name} is a directory")
    if not os.access(path, os.R_OK):
        raise typer.BadParameter(f"{name} cannot be read: permission denied")


def _bytes(flag: str, text: str) -> bytes:
    from millrace_cli.formats.record_text import FormatError, unescaped

    try:
        return unescaped(text)
    except FormatError as error:
        raise typer.BadParameter(f"{flag}: {error}") from None


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise typer.BadParameter(f"--header {text!r} has no name before =")
    # Bytes of the command line that are not UTF-8 come as surrogates.
    return name, os.fsencode(value) if equals else None


def _timestamp_ms(text: str, timestamp_field: str) -> int:
    if timestamp_field:
        raise typer.BadParameter("--timestamp excludes --timestamp-field: give one of them")
    try:
        return timestamp_ms(text)
    except ValueError as error:
        raise typer.BadParameter(f"--timestamp: {error}") from None
