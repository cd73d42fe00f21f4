"""The commands of the text dialect, each a few lines between a typed line and a service.

An answer is lines; the last begins with `OK` or `ERR`, so that a script knows where it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from millrace_protocol.errors import ErrorCode
from millrace_protocol.records import CorruptBatch, encode_batch
from millrace_server.api_error import ApiError
from millrace_server.dialects.text.groups import groups, lag
from millrace_server.dialects.text.lines import ANSWER_CHARACTERS, Lines, counted, record_line
from millrace_server.dialects.text.statistics import stats
from millrace_server.services.produce import ACKS_ALL
from millrace_server.services.records import PartitionRecords
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services
from millrace_server.topic_config import TOPIC_CONFIG_KEYS

FETCH_COUNT_DEFAULT = 10
FETCH_COUNT_MAX = 1_000
FETCH_BYTES = 64 << 10
"""Bytes of log that one FETCH reads, unless the first batch is larger."""
CHUNK_CHARACTERS = 8 << 10
"""Of records that are made into lines in one go: when all have to be escaped, some 200 us."""
PRODUCE_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class Command:
    """One command: how it is typed, what it does, and who answers it.

    `words` is how many words are split off the line, at least and at most; with `takes_rest` the
    remainder of the line, spaces included, is one more.
    """

    usage: str
    doc: str
    words: tuple[int, int]
    takes_rest: bool
    run: Callable[..., Lines | Coroutine[Any, Any, Lines]]


def help_lines(services: Services, context: RequestContext) -> Lines:
    """Every command with its usage."""
    listed = [(command.usage, command.doc) for command in COMMANDS.values()]
    listed += CONVERSATIONS
    width = max(len(usage) for usage, _ in listed)
    return [f"{usage:<{width}}  {doc}" for usage, doc in listed] + ["OK"]


def topics(services: Services, context: RequestContext) -> Lines:
    """Topic names with their partition counts."""
    listed = [
        f"topic {t.name} partitions {t.partition_count}"
        for t in (
            services.cluster.topic(context, n) for n in services.cluster.visible_topics(context)
        )
    ]
    return [*listed, f"OK {counted(len(listed), 'topic')}"]


def describe(services: Services, context: RequestContext, name: str) -> Lines:
    """A topic's identity, settings and partitions."""
    topic = services.cluster.topic(context, name)
    config = services.topics.config(context, name)
    return [
        f"topic {name} id {topic.topic_id} partitions {topic.partition_count} "
        f"replication factor {topic.replication_factor}",
        *(
            f"config {key}={config.text(key)}{'' if key in config.own else ' (default)'}"
            for key in TOPIC_CONFIG_KEYS
        ),
        *(
            _partition_line(services, context, name, number)
            for number in range(topic.partition_count)
        ),
        "OK",
    ]


def _partition_line(services: Services, context: RequestContext, name: str, number: int) -> str:
    try:
        extent = services.offsets.extent(context, name, number)
    except ApiError as refused:
        return f"partition {number} offline: {refused.message}"
    return (
        f"partition {number} leader {services.cluster.node_id} start {extent.start_offset} "
        f"high watermark {extent.high_watermark} end {extent.end_offset} "
        f"bytes {extent.size_bytes}"
    )


async def create(
    services: Services, context: RequestContext, name: str, partitions: str = "-1"
) -> Lines:
    """Creates a topic."""
    topic = await services.topics.create(context, name, partitions=number(partitions, "PARTITIONS"))
    return [f"OK topic {name} with {counted(topic.partition_count, 'partition')}"]


async def produce(
    services: Services, context: RequestContext, topic: str, partition: str, value: str = ""
) -> Lines:
    """Appends one record without a key and answers when it is durable."""
    return await _append(services, context, topic, partition, None, value)


async def produce_key(
    services: Services,
    context: RequestContext,
    topic: str,
    partition: str,
    key: str,
    value: str = "",
) -> Lines:
    """The same with a key of one word."""
    return await _append(
        services, context, topic, partition, key.encode("utf-8", "surrogateescape"), value
    )


async def _append(
    services: Services,
    context: RequestContext,
    topic: str,
    partition: str,
    key: bytes | None,
    value: str,
) -> Lines:
    batch = encode_batch(
        [value.encode("utf-8", "surrogateescape")],
        keys=None if key is None else [key],
        timestamps_ms=services.env.clock.wall_ms(),
    )
    [result] = await services.produce.append(
        context,
        [(topic, number(partition, "PARTITION"), memoryview(batch))],
        acks=ACKS_ALL,
        timeout_ms=PRODUCE_TIMEOUT_MS,
    )
    if result.code is not ErrorCode.NONE:
        raise ApiError(result.code, result.message)
    return [f"OK {topic}-{result.partition} offset {result.base_offset}"]


async def fetch(
    services: Services,
    context: RequestContext,
    topic: str,
    partition: str,
    offset: str,
    count: str = str(FETCH_COUNT_DEFAULT),
) -> Lines:
    """Records from an offset on; does not wait for more."""
    wanted = number(count, "COUNT")
    if not 1 <= wanted <= FETCH_COUNT_MAX:
        raise usage_error(f"COUNT is {wanted}; it is 1 to {FETCH_COUNT_MAX}")
    first = number(offset, "OFFSET")
    records = services.records.open(context, topic, number(partition, "PARTITION"))
    records.check_readable(first)
    lines, next_offset = await read_lines(services, records, first, wanted)
    records.count_sent(sum(map(len, lines)))
    return [
        *lines,
        f"OK {counted(len(lines), 'record')}, next offset {next_offset}, "
        f"high watermark {records.high_watermark}",
    ]


async def read_lines(
    services: Services,
    partition: PartitionRecords,
    offset: int,
    count: int,
    *,
    characters_max: int = ANSWER_CHARACTERS,
) -> tuple[Lines, int]:
    """Up to `count` records from `offset` as lines, and the offset after them.

    Ends with the record that reaches `characters_max`, and before a batch that cannot be read
    unless it is the first. Other requests run between its chunks.

    Raises `CorruptBatch` and `ApiError` for a batch that cannot be read, or not in text.
    """
    lines: Lines = []
    characters_left = characters_max
    while len(lines) < count and characters_left > 0 and offset < partition.high_watermark:
        async with services.lookups:
            data = partition.read(offset, max_bytes=FETCH_BYTES)
            if not data:
                break
            more, next_offset, fault = await _lines_of(
                services, data, offset, count - len(lines), characters_left
            )
        lines += more
        characters_left -= sum(map(len, more))
        if fault is not None and not lines:
            raise fault
        if fault is not None or next_offset == offset:
            return lines, next_offset
        offset = next_offset
    return lines, offset


async def _lines_of(
    services: Services, data: bytes, offset: int, count: int, characters_left: int
) -> tuple[Lines, int, CorruptBatch | ApiError | None]:
    """Up to `count` lines of whole batches, the offset after them, and what ended them early."""
    lines: Lines = []
    in_turn = 0
    whole = 0, offset
    try:
        async with aclosing(services.lookups.records(data, from_offset=offset)) as chunks:
            async for records, next_offset in chunks:
                for record in records:
                    lines.append(record_line(record))
                    characters_left -= len(lines[-1])
                    if len(lines) == count or characters_left <= 0:
                        return lines, record[0] + 1, None
                    in_turn += len(lines[-1])
                    if in_turn >= CHUNK_CHARACTERS:
                        in_turn = 0
                        await services.scheduler.yield_()
                if not records:
                    whole = len(lines), next_offset
    except (CorruptBatch, ApiError) as fault:
        # What was read of a broken batch may be as wrong as the rest of it.
        return lines[: whole[0]], whole[1], fault
    return lines, whole[1], None


def offsets(services: Services, context: RequestContext, name: str) -> Lines:
    """First and next readable offset of every partition."""
    topic = services.cluster.topic(context, name)
    listed = []
    for n in range(topic.partition_count):
        extent = services.offsets.extent(context, name, n)
        listed.append(
            f"partition {n} start {extent.start_offset} high watermark {extent.high_watermark}"
        )
    return [*listed, "OK"]


def number(text: str, what: str) -> int:
    """A whole number a person typed. Raises `ApiError`."""
    try:
        return int(text)
    except ValueError:
        raise usage_error(f"{what} is {text!r}; it is a whole number") from None


def usage_error(reason: str) -> ApiError:
    """The error of a line that cannot be understood."""
    return ApiError(ErrorCode.INVALID_REQUEST, f"{reason}. HELP lists the commands")


CONVERSATIONS = (
    ("AUTH PLAIN USER PASSWORD", "say who you are, with TLS"),
    ("AUTH MECHANISM BASE64", "the same by the messages of SCRAM, one line for each"),
    ("TAIL TOPIC PARTITION", "new records as they come, until you hang up"),
    ("QUIT", "end the connection"),
)
"""What the dialect itself does, because it is not one line and its answer."""
COMMANDS: dict[str, Command] = {
    "HELP": Command("HELP", "this list", (0, 0), False, help_lines),
    "TOPICS": Command("TOPICS", "topics and their partition counts", (0, 0), False, topics),
    "DESCRIBE": Command(
        "DESCRIBE TOPIC", "settings, partitions and offsets", (1, 1), False, describe
    ),
    "CREATE": Command("CREATE TOPIC [PARTITIONS]", "create a topic", (1, 2), False, create),
    "PRODUCE": Command(
        "PRODUCE TOPIC PARTITION VALUE", "append the rest of the line", (2, 2), True, produce
    ),
    "PRODUCEKEY": Command(
        "PRODUCEKEY TOPIC PARTITION KEY VALUE", "the same with a key", (3, 3), True, produce_key
    ),
    "FETCH": Command(
        "FETCH TOPIC PARTITION OFFSET [COUNT]", "read records, 10 or COUNT", (3, 4), False, fetch
    ),
    "OFFSETS": Command("OFFSETS TOPIC", "first and next readable offset", (1, 1), False, offsets),
    "GROUPS": Command("GROUPS", "consumer groups and their states", (0, 0), False, groups),
    "LAG": Command("LAG GROUP", "how far a group has come, by partition", (1, 1), False, lag),
    "STATS": Command(
        "STATS [PREFIX]", "statistics, those whose names begin with PREFIX", (0, 1), False, stats
    ),
}
