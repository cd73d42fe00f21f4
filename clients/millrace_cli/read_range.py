"""What `millrace consume` reads: the topics, where it starts in each partition, and where it ends.

Owns the texts of these flags and the offsets that they stand for. Asks the brokers for offsets
through a consumer, which reads the records.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millrace.records import RecordBatch, TopicPartition
from millrace_cli.client_identity import identity
from millrace_cli.exits import CommandError
from millrace_cli.formats.input_format import BeforeEpoch, timestamp_ms
from millrace_cli.name_patterns import expand, is_pattern

if TYPE_CHECKING:
    from millrace.consumer import Consumer, Start

_OFFSET = re.compile(r"\d{1,18}", re.ASCII)
_OFFSETS = re.compile(r"\d{1,9}:\d{1,18}(,\d{1,9}:\d{1,18})*", re.ASCII)


@dataclass(frozen=True, slots=True)
class ReadStart:
    """The start of the read: exactly one field is set."""

    end: str = ""
    offset: int | None = None
    offsets: dict[int, int] = field(default_factory=dict)
    """By partition. The others are not read."""
    last: int | None = None
    time_ms: int | None = None

    @classmethod
    def parse(cls, text: str) -> ReadStart:
        """Raises `ValueError`.

        >>> ReadStart.parse("0:17,2:40").offsets
        {0: 17, 2: 40}
        """
        if text in ("earliest", "latest"):
            return cls(end=text)
        if _OFFSET.fullmatch(text):
            return cls(offset=int(text))
        if _OFFSETS.fullmatch(text):
            pairs = [pair.split(":") for pair in text.split(",")]
            return cls(offsets={int(partition): int(offset) for partition, offset in pairs})
        if text[:1] == "-" and _OFFSET.fullmatch(text[1:]):
            return cls(last=int(text[1:]))
        try:
            return cls(time_ms=time_of(text))
        except BeforeEpoch:
            raise
        except ValueError:
            raise ValueError(
                f"{text!r} is neither earliest, latest, an offset, PARTITION:OFFSET, -N, @MS, "
                "nor ISO 8601"
            ) from None

    def of_group(self) -> Start:
        """The start of a group without committed offsets. Raises `ValueError`."""
        if self.time_ms is not None:
            return self.time_ms
        if self.end == "latest":
            return "latest"
        if self.end == "earliest":
            return "earliest"
        raise ValueError(
            "with --group, give earliest, latest or a time; millrace group reset moves a group"
        )


def time_of(text: str) -> int:
    """A time in ms since the epoch, from `@MS` or ISO 8601. Raises `ValueError`."""
    if text[:1] == "@":
        if not _OFFSET.fullmatch(text[1:]):
            raise ValueError(f"{text!r} is not @ and milliseconds since the epoch")
        return int(text[1:])
    if text.isdigit():
        raise ValueError(f"{text!r} is neither @MS nor ISO 8601")
    return timestamp_ms(text)


async def matching_topics(servers: str, names: Sequence[str]) -> tuple[str, ...]:
    """The topics: those that are named, and those that match a name that begins with `^`.

    Raises `CommandError` where no topic matches.
    """
    known: list[str] = []
    if any(map(is_pattern, names)):
        from millrace.admin import Admin

        async with Admin(servers, **identity()) as admin:
            known = await admin.list_topics()
    return expand(names, known, kind="topic")


async def end_offsets(
    consumer: Consumer[bytes, bytes], wanted: Iterable[TopicPartition], until_ms: int | None
) -> dict[TopicPartition, int]:
    """The ends of the partitions now, or where the records from a time on begin; exclusive."""
    wanted = tuple(wanted)
    ends = await consumer.end_offsets(*wanted)
    if until_ms is not None:
        for where, found in (
            await consumer.offsets_for_times(dict.fromkeys(wanted, until_ms))
        ).items():
            if found is not None:
                ends[where] = min(ends[where], found[0])
    return ends


async def seek_to_start(
    consumer: Consumer[bytes, bytes], start: ReadStart, ends: dict[TopicPartition, int]
) -> None:
    """Moves the consumer to the start in each partition of `ends`, the current ends of the logs.

    Raises `CommandError` for an offset that is not in the log.
    """
    if start.end == "latest":
        for where, end in ends.items():
            consumer.seek(where, end)
    elif start.time_ms is not None:
        consumer.seek_to_timestamp(start.time_ms)
    elif not start.end:
        beginnings = await consumer.beginning_offsets(*ends)
        for where, end in ends.items():
            consumer.seek(where, _offset(start, where, beginnings[where], end))


async def batches_until(
    consumer: Consumer[bytes, bytes], ends: Mapping[TopicPartition, int]
) -> AsyncIterator[RecordBatch[bytes, bytes]]:
    """The batches with the records below the ends; without any ends, until an interrupt.

    The last batch of a partition may have records beyond its end.
    """
    ahead = dict(ends)
    async for batch in consumer.batches():
        yield batch
        if batch.where in ahead and batch.next_offset >= ahead[batch.where]:
            del ahead[batch.where]
            if not ahead:
                return
            consumer.pause(batch.where)


def _offset(start: ReadStart, where: TopicPartition, beginning: int, end: int) -> int:
    if start.last is not None:
        return max(beginning, end - start.last)
    offset = start.offsets[where.partition] if start.offset is None else start.offset
    if not beginning <= offset <= end:
        raise CommandError(
            f"{where} has offsets from {beginning} to {end}; {offset} is not among them. "
            "Give another --from, or a --partition"
        )
    return offset
