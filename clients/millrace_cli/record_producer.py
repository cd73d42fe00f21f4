"""`millrace produce`: the records of inputs to a topic.

Owns one run: the order of sending, the count of acked records, and the end. After the first signal
the command reads nothing more, sends the records that it has read, and waits for their acks.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from millrace.errors import NotAuthorized
from millrace.producer import Producer
from millrace.records import Headers
from millrace_cli.exits import CommandError, Exit, InputError, tell
from millrace_cli.formats.input_format import Columns, Format, Reader
from millrace_cli.formats.input_lines import LINE_BYTES_MAX, Inputs, Lines
from millrace_cli.formats.input_notes import InputNotes
from millrace_cli.interruption import until_interrupted
from millrace_cli.json_output import print_json
from millrace_cli.read_progress import read_progress
from millrace_cli.visible_text import counted
from millrace_cli.watched_producer import ACKS_S, tell_unacked, watched_producer


@dataclass
class RecordProducer:
    """One run of the command, with its totals."""

    topic: str
    files: list[str]
    """Paths, or `-` for stdin."""
    partition: int | None
    format_: Format
    delimiter: bytes
    reader: Callable[[str], Reader]
    """Makes the reader of an input of this name."""
    notes: InputNotes
    headers: Headers
    """Of every record, behind its own."""
    timestamp_ms: int | None
    settings: Mapping[str, Any]
    """Of the client; `delivery_timeout_ms` is among them."""
    as_json: bool = False
    """Whether the summary goes to stdout, as JSON."""
    inputs: Inputs = field(default_factory=Inputs)
    records: int = 0
    unacked: int = 0
    """Records that were given to the producer and are not among `records`."""
    size: int = 0
    """Bytes of the keys and values of `records`."""

    async def run(self, servers: str) -> Exit:
        """Sends all inputs; prints the totals after success and after failure."""
        started = time.monotonic()
        producing = watched_producer(servers, self.settings, unacked=lambda: self.unacked)
        async with producing as producer:
            await self._check_partition(producer)
            try:
                await self._send_all(producer)
            except NotAuthorized:
                if not self.records:
                    # The broker has taken none.
                    self.unacked = 0
                raise
            finally:
                self._summarize(time.monotonic() - started)
        return Exit.OK

    async def _check_partition(self, producer: Producer) -> None:
        count = await producer.partition_count(self.topic)
        if self.partition is not None and self.partition >= count:
            raise CommandError(
                f"{self.topic} has no partition {self.partition}; it has 0 to {count - 1}"
            )

    async def _send_all(self, producer: Producer) -> None:
        await until_interrupted(
            self._send_inputs(producer),
            stop=self.inputs.stop,
            within_s=ACKS_S,
            waits_for=lambda: f"the broker to acknowledge {counted(self.unacked, 'record')}",
        )

    async def _send_inputs(self, producer: Producer) -> None:
        with read_progress(self.files) as on_read:
            for name in self.files:
                if not self.inputs.is_stopped:
                    await self._send_input(producer, name, on_read)

    async def _send_input(
        self, producer: Producer, name: str, on_read: Callable[[int], None]
    ) -> None:
        shown = "stdin" if name == "-" else name
        reader = self.reader(shown)
        try:
            async for lines, first_line in self._lines(name, on_read):
                await self._send_lines(producer, reader, lines, first_line)
        except OSError as error:
            if error.filename is None:
                raise
            raise InputError(f"{shown}: {error.strerror}") from None

    async def _lines(
        self, name: str, on_read: Callable[[int], None]
    ) -> AsyncIterator[tuple[list[bytes], int]]:
        """The records of an input, and the number of the first of them.

        The last one, which has no end, is omitted after an interrupt: it may be a part of one.
        """
        chunks = self.inputs.chunks(name, on_read)
        if self.format_ is Format.FILE:
            whole = bytearray()
            async for chunk in chunks:
                whole += chunk
                if len(whole) > LINE_BYTES_MAX:
                    raise InputError(f"{name} is longer than {LINE_BYTES_MAX} bytes")
            if not self.inputs.is_stopped:
                yield [bytes(whole)], 1
            return
        lines = Lines(quoted=self.format_ is Format.CSV, delimiter=self.delimiter)
        async for chunk in chunks:
            first_line = lines.count + 1
            yield lines.feed(chunk), first_line
        if not self.inputs.is_stopped:
            first_line = lines.count + 1
            yield lines.end(), first_line

    async def _send_lines(
        self, producer: Producer, reader: Reader, lines: list[bytes], first_line: int
    ) -> None:
        columns = reader.read(lines, first_line) if lines else Columns()
        if not columns.values:
            return
        headers = columns.headers
        if self.headers:
            headers = [(*own, *self.headers) for own in headers or [()] * len(columns.values)]
        self.unacked = len(columns.values)
        await producer.send_many(
            self.topic,
            columns.values,
            keys=columns.keys,
            headers=headers,
            timestamps_ms=columns.timestamps_ms if self.timestamp_ms is None else self.timestamp_ms,
            partition=self.partition,
        )
        self.unacked = 0
        self.records += len(columns.values)
        self.size += sum(len(v or b"") for v in columns.values)
        self.size += sum(len(k or b"") for k in columns.keys or ())

    def _summarize(self, elapsed_s: float) -> None:
        for line in self.notes.lines():
            tell(line)
        if self.as_json:
            print_json(
                {
                    "topic": self.topic,
                    "records": self.records,
                    "bytes": self.size,
                    "unacknowledged": self.unacked,
                    "seconds": round(elapsed_s, 3),
                }
            )
            sys.stdout.flush()
            return
        print(summary_line(self.records, self.size, elapsed_s), file=sys.stderr)
        tell_unacked(self.unacked)


def summary_line(records: int, size_bytes: int, elapsed_s: float) -> str:
    """What a run has sent.

    >>> summary_line(1, 1_200, 0.5)
    'sent 1 record, 1,200 bytes in 0.50 s (2 records/s)'
    """
    rate = f"{records / elapsed_s:,.0f} records/s" if elapsed_s else "-"
    return (
        f"sent {counted(records, 'record')}, {counted(size_bytes, 'byte')} "
        f"in {elapsed_s:.2f} s ({rate})"
    )
