"""`millrace consume`: records to stdout.

Owns the flags, and the start and end of the read. `record_text` formats records; `group_consumer`
reads as a member of a group.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_cli.exits import CommandError, Exit, run
from millrace_cli.servers import DEFAULT_SERVERS, Servers

if TYPE_CHECKING:
    from millrace.consumer import Consumer, Start
    from millrace.records import TopicPartition
    from millrace_cli.formats.record_text import ToText

DEFAULT_FORMAT = r"%s\n"


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
        help="earliest, latest, an offset, -N for the last N of each partition, or a time: "
        "ISO 8601, or @ and ms since the epoch.",
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
Json = Annotated[bool, typer.Option("--json", help="Print each record as a JSON object in a line.")]


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to read.")],
    partition: Partitions = None,
    start: From = "earliest",
    count: Count = None,
    group: Group = None,
    follow: Follow = False,
    format_: FormatString = None,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Print records, in order within each partition.

    Without --follow, stops at the ends that the partitions had when the command started.

    With --group, --from is the start of partitions without a committed offset: earliest, latest, or
    a time. The command commits records after it has printed them. If it is killed between the two,
    the group prints these records again.

    \b
    FORMAT, like kcat's:
      %t topic      %o offset          %k key    %K its size, -1 for null
      %p partition  %T timestamp (ms)  %s value  %S its size, -1 for null
      %h headers    %% percent sign    \\n \\t \\r \\0 \\\\ \\xHH

    Bytes that are not UTF-8 become \\xHH; on a terminal, so do control characters. In JSON,
    a key or value that is not UTF-8 is {"base64": "..."}.
    """
    from millrace_cli.formats.record_text import FormatError, json_line, text_format

    if as_json and format_ is not None:
        raise typer.BadParameter("--json excludes --format: give one of them")
    try:
        to_text = (
            json_line
            if as_json
            else text_format(
                DEFAULT_FORMAT if format_ is None else format_, for_terminal=sys.stdout.isatty()
            )
        )
    except FormatError as error:
        raise typer.BadParameter(f"--format: {error}") from None
    begin = _begin(start)
    # JSON may contain characters that the terminal's encoding lacks.
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    if group is not None:
        from millrace_cli.group_consumer import GroupConsumer

        if partition:
            raise typer.BadParameter("--partition: the group assigns partitions; leave it out")
        member = GroupConsumer(topic, group, _start(begin), count, follow, to_text)
        run(member.run(servers))
    run(_Run(topic, partition or [], begin, count, follow, to_text).run(servers))


@dataclass(frozen=True, slots=True)
class _Begin:
    """The start of the read: exactly one field is set."""

    end: str = ""
    offset: int | None = None
    last: int | None = None
    time_ms: int | None = None


def _begin(text: str) -> _Begin:
    from millrace_cli.formats.input_format import timestamp_ms

    if text in ("earliest", "latest"):
        return _Begin(end=text)
    digits = text.removeprefix("-").removeprefix("@")
    if digits.isascii() and digits.isdigit() and len(digits) < 19:
        match text[0]:
            case "@":
                return _Begin(time_ms=int(digits))
            case "-":
                return _Begin(last=int(digits))
            case _:
                return _Begin(offset=int(digits))
    try:
        return _Begin(time_ms=timestamp_ms(text))
    except ValueError:
        raise typer.BadParameter(
            f"--from {text!r} is neither earliest, latest, an offset, -N, @MS, nor ISO 8601"
        ) from None


def _start(begin: _Begin) -> Start:
    """The start of a group without committed offsets."""
    if begin.time_ms is not None:
        return begin.time_ms
    if begin.end == "latest":
        return "latest"
    if begin.end == "earliest":
        return "earliest"
    raise typer.BadParameter(
        "--from: with --group, give earliest, latest or a time; millrace group reset moves a group"
    )


@dataclass(slots=True)
class _Run:
    """One run of the command."""

    topic: str
    partitions: list[int]
    begin: _Begin
    count: int | None
    follow: bool
    to_text: ToText

    async def run(self, servers: str) -> Exit:
        """Reads until the end, the count, or an interrupt."""
        from millrace.consumer import Consumer
        from millrace.records import TopicPartition

        async with Consumer(servers, self.topic, client_id="millrace-cli") as consumer:
            known = consumer.assignment()
            if self.partitions:
                wanted = [TopicPartition(self.topic, p) for p in sorted({*self.partitions})]
                self._refuse_unknown(wanted, known)
                consumer.assign(wanted)
            else:
                wanted = known
            ends = await consumer.end_offsets(*wanted)
            await self._seek(consumer, wanted, ends)
            if self.follow:
                await self._print(consumer, {})
            else:
                ahead = {w: end for w, end in ends.items() if await consumer.position(w) < end}
                consumer.assign(ahead)
                if ahead:
                    await self._print(consumer, ahead)
        return Exit.OK

    def _refuse_unknown(self, wanted: list[TopicPartition], known: list[TopicPartition]) -> None:
        unknown = [where.partition for where in wanted if where not in known]
        if unknown:
            raise CommandError(
                f"{self.topic} has no partition {unknown[0]}; it has 0 to {len(known) - 1}"
            )

    async def _seek(
        self,
        consumer: Consumer[bytes, bytes],
        wanted: list[TopicPartition],
        ends: dict[TopicPartition, int],
    ) -> None:
        begin = self.begin
        if begin.end == "latest":
            for where, end in ends.items():
                consumer.seek(where, end)
        elif begin.time_ms is not None:
            consumer.seek_to_timestamp(begin.time_ms)
        elif begin.offset is not None or begin.last is not None:
            starts = await consumer.beginning_offsets(*wanted)
            for where, end in ends.items():
                if begin.last is not None:
                    consumer.seek(where, max(starts[where], end - begin.last))
                    continue
                assert begin.offset is not None
                if not starts[where] <= begin.offset <= end:
                    raise CommandError(
                        f"{where} has offsets from {starts[where]} to {end}; "
                        f"{begin.offset} is not among them. Give another --from, or a --partition"
                    )
                consumer.seek(where, begin.offset)

    async def _print(
        self, consumer: Consumer[bytes, bytes], ahead: dict[TopicPartition, int]
    ) -> None:
        """Prints records up to the `ahead` offsets, exclusive; without them, until an interrupt."""
        from millrace_cli.formats.record_text import records_before

        left = self.count
        async for batch in consumer.batches():
            records = records_before(batch, ahead.get(batch.where))
            if left is not None:
                records = records[:left]
                left -= len(records)
            # A slow reader of the pipe delays the fetches, which bounds memory.
            sys.stdout.write("".join(map(self.to_text, records)))
            sys.stdout.flush()
            if batch.where in ahead and batch.next_offset >= ahead[batch.where]:
                del ahead[batch.where]
                if not ahead:
                    return
                consumer.pause(batch.where)
            if left == 0:
                return
