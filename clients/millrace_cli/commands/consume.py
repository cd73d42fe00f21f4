"""`millrace consume`: records to stdout.

Owns the flags. `partition_consumer` and `group_consumer` read, `record_text` and `envelope` format.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_cli.client_settings import Settings, client_settings
from millrace_cli.exits import Exit, run
from millrace_cli.name_patterns import check_patterns, is_pattern
from millrace_cli.servers import (
    DEFAULT_BROKER_TIMEOUT_S,
    DEFAULT_SERVERS,
    BrokerTimeout,
    Servers,
)

if TYPE_CHECKING:
    from millrace_cli.formats.record_text import Formatter
    from millrace_cli.read_range import ReadStart

Topics = Annotated[
    list[str],
    typer.Argument(
        metavar="TOPIC", help="Topics to read; ^REGEX reads the topics that match it now."
    ),
]
Partitions = Annotated[
    list[int] | None,
    typer.Option(
        "--partition", "-p", min=0, help="Only this partition; may be repeated.  [default: all]"
    ),
]
From = Annotated[
    str,
    typer.Option(
        "--from",
        "-o",
        metavar="WHERE",
        help="earliest, latest, an offset, PARTITION:OFFSET,... for these partitions only, -N for "
        "the last N of each partition, or a time: ISO 8601, or @ and ms since the epoch.",
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Stop before the first record at or after TIME: ISO 8601, or @ and ms.",
    ),
]
Count = Annotated[
    int | None, typer.Option("--count", "-n", min=1, help="Stop after N records.", metavar="N")
]
Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        metavar="NAME",
        help="Share the partitions with the members of this group, begin at its committed "
        "offsets, and commit printed records.",
    ),
]
Follow = Annotated[
    bool,
    typer.Option("--follow", "-f", help="Wait for new records instead of stopping at the end."),
]
FormatString = Annotated[
    str | None,
    typer.Option("--format", metavar="FORMAT", help=r"Format of a record.  [default: %s\n]"),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        "-D",
        metavar="TEXT",
        help=r"Instead of --format: values, and TEXT after each; '' for nothing.  [default: \n]",
    ),
]
KeySeparator = Annotated[
    str | None,
    typer.Option(
        "--key-separator", "-K", metavar="TEXT", help="Instead of --format: key, TEXT, value."
    ),
]
Null = Annotated[
    bool,
    typer.Option("--show-null", "-Z", help="Print a null key or value as NULL, not as nothing."),
]
Escape = Annotated[
    bool | None,
    typer.Option(
        "--escape/--no-escape",
        help=r"Print bytes that are not UTF-8 and control characters as \xHH.  "
        "[default: on a terminal]",
    ),
]
Json = Annotated[bool, typer.Option("--json", "-J", help="Print records as JSON objects in lines.")]
Rack = Annotated[
    str | None,
    typer.Option("--rack", help="Read from replicas whose brokers have this rack, where they are."),
]


def consume(
    topics: Topics,
    partition: Partitions = None,
    start: From = "earliest",
    until: Until = None,
    count: Count = None,
    group: Group = None,
    follow: Follow = False,
    format_: FormatString = None,
    delimiter: Delimiter = None,
    key_separator: KeySeparator = None,
    null: Null = False,
    escape: Escape = None,
    as_json: Json = False,
    rack: Rack = None,
    setting: Settings = None,
    broker_timeout_s: BrokerTimeout = DEFAULT_BROKER_TIMEOUT_S,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Print records, in order within each partition.

    Without --follow, stops at the ends that the partitions had when the command started.

    With --group, --from is the start of partitions without a committed offset: earliest, latest, or
    a time. The command commits a record when all of its bytes have left the process, also after ^C,
    SIGTERM, or a closed pipe. If it is killed before, the group prints some records again.

    \b
    FORMAT, like kcat's:
      %t topic      %o offset          %k key    %K its size, -1 for null
      %p partition  %T timestamp (ms)  %s value  %S its size, -1 for null
      %h headers    %% percent sign    %R the value's size, 32 bits, big-endian
      \\n \\t \\r \\0 \\\\ \\xHH

    In a pipe and in a file, bytes are as they are in the record: -D '' prints the values alone, and
    --format %R%s prefixes each with its size. In JSON, a key or value that is not UTF-8 is
    {"base64": "..."}; millrace produce --format json-envelope sends such lines as the same records.
    """
    escaped = sys.stdout.isatty() if escape is None else escape
    if as_json:
        formatter = _json([format_, delimiter, key_separator], null=null, escaped=escaped)
    else:
        formatter = _formatter(format_, delimiter, key_separator, null=null, escaped=escaped)
    from_, until_ms = _start(start, group, partition, topics), _until(until, follow=follow)
    partitions = partition or sorted(from_.offsets)
    how = (until_ms, count, follow, formatter)
    if rack is not None:
        setting = [*(setting or ()), f"client_rack={rack}"]
    run(_consume(servers, topics, partitions, from_, group, how, setting, broker_timeout_s))


async def _consume(
    servers: str,
    names: list[str],
    partitions: list[int],
    start: ReadStart,
    group: str | None,
    how: tuple[int | None, int | None, bool, Formatter],
    setting: list[str] | None,
    broker_timeout_s: float,
) -> Exit:
    from millrace.config import ConsumerConfig
    from millrace_cli.read_range import matching_topics

    settings = client_settings(setting, ConsumerConfig)
    if group is not None and "auto_commit" in settings:
        raise typer.BadParameter("-X auto_commit: the command commits what it has written")
    topics = await matching_topics(servers, names)
    if group is None:
        from millrace_cli.partition_consumer import PartitionConsumer

        reader = PartitionConsumer(topics, partitions, start, *how, settings, broker_timeout_s)
        return await reader.run(servers)
    from millrace_cli.group_consumer import GroupConsumer

    member = GroupConsumer(topics, group, start.of_group(), *how, settings, broker_timeout_s)
    return await member.run(servers)


def _json(excluded: list[str | None], *, null: bool, escaped: bool) -> Formatter:
    from millrace_cli.formats.envelope import json_format

    if excluded.count(None) < len(excluded) or null:
        raise typer.BadParameter("--json excludes --format, -D, -K and -Z: give one of them")
    return json_format(escaped=escaped)


def _formatter(
    format_: str | None,
    delimiter: str | None,
    key_separator: str | None,
    *,
    null: bool,
    escaped: bool,
) -> Formatter:
    from millrace_cli.formats.record_text import FormatError, record_format

    if format_ is not None and not (delimiter is None and key_separator is None):
        raise typer.BadParameter("--format excludes -D and -K: give one of them")
    if format_ is None:
        end = r"\n" if delimiter is None else delimiter.replace("%", "%%")
        key = "" if key_separator is None else f"%k{key_separator.replace('%', '%%')}"
        format_ = f"{key}%s{end}"
    try:
        return record_format(format_, escaped=escaped, null=b"NULL" if null else b"")
    except FormatError as error:
        raise typer.BadParameter(f"--format: {error}") from None


def _start(
    text: str, group: str | None, partitions: list[int] | None, topics: list[str]
) -> ReadStart:
    from millrace_cli.read_range import ReadStart

    try:
        start = ReadStart.parse(text)
        if group is not None:
            start.of_group()
    except ValueError as error:
        raise typer.BadParameter(f"--from: {error}") from None
    if start.offsets and (partitions or len(topics) > 1 or is_pattern(topics[0])):
        raise typer.BadParameter(
            "--from: PARTITION:OFFSET names the partitions of one topic; leave out --partition, "
            "and read other topics by another command"
        )
    if group is not None and partitions:
        raise typer.BadParameter("--partition: the group assigns partitions; leave it out")
    check_patterns(topics)
    return start


def _until(text: str | None, *, follow: bool) -> int | None:
    from millrace_cli.read_range import time_of

    if text is None:
        return None
    if follow:
        raise typer.BadParameter("--until excludes --follow: it stops")
    try:
        return time_of(text)
    except ValueError as error:
        raise typer.BadParameter(f"--until: {error}") from None
