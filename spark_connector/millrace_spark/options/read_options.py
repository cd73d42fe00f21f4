"""The options of a read: defaults and checks.

Owns validation, so that a wrong option fails before any request, with a message that names the
option. `option_names` has the names, `bounds` and `selection` the larger values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millrace_spark.errors import OptionError
from millrace_spark.options.bounds import (
    Bound,
    Edge,
    check_batch_bounds,
    named_partitions,
    option_of,
    parse_offsets,
    parse_time,
    parse_times,
)
from millrace_spark.options.credentials import NO_CREDENTIALS, Credentials, parse_credentials
from millrace_spark.options.option_names import canonical_options
from millrace_spark.options.option_parsing import (
    parse_brokers,
    parse_bytes,
    parse_count,
    parse_duration_ms,
    parse_flag,
    parse_word,
)
from millrace_spark.options.selection import OPTIONS, Selection, parse_selection

DEADLINE_MS_MIN = 100
DEADLINE_MS_MAX = 24 * 60 * 60 * 1000
PARTITIONS_MAX = 100_000
"""Spark partitions of one read. Each is a task, and the driver holds all of them in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The checked options of a read; made by `parse_read_options`."""

    servers: str
    """`host:port`, or several with commas between."""
    selection: Selection
    credentials: Credentials = NO_CREDENTIALS
    start: Bound = Edge.EARLIEST
    """First record, included."""
    end: Bound = Edge.LATEST
    """The end of a batch, excluded. `latest` is the end of the log at the time of planning."""
    start_must_match: bool = False
    """Whether a partition without a record at or after the start is an error; else it is empty."""
    fail_on_data_loss: bool = True
    """Whether lost records fail the read; otherwise it skips them and logs a warning."""
    min_partitions: int | None = None
    """The least number of Spark partitions, if there are as many records."""
    max_records_per_partition: int | None = None
    """A longer range becomes several Spark partitions of about equal length."""
    max_partition_bytes: int = 128 * 1024 * 1024
    """A range of more bytes on disk becomes several Spark partitions of about equal bytes."""
    include_headers: bool = False
    """Whether the read has a column `headers`."""
    value_format: str = "binary"
    """`binary`, or `json`: the columns of the user's schema are fields of the values."""
    record_prefix: str = ""
    """With `json`: what the names of the record's own columns begin with."""
    deadline_ms: int = 30_000
    """Longest wait for a connection, for a response, or for the next records of a task."""
    push_filters: bool = False
    """Whether a batch read evaluates filters before it reads records."""
    commit_group: str | None = None
    """The group whose offsets show the progress of a stream."""
    max_offsets_per_trigger: int | None = None
    """Most records of a micro-batch."""
    min_offsets_per_trigger: int | None = None
    """Least records of a micro-batch, unless `max_trigger_delay_ms` have passed."""
    max_bytes_per_trigger: int | None = None
    """Most bytes of a micro-batch, as on disk."""
    max_trigger_delay_ms: int = 15 * 60 * 1000


def parse_read_options(options: Mapping[str, str], *, is_stream: bool) -> ReadOptions:
    """The options of one read, with names in any case. Raises `OptionError`.

    >>> given = {"millrace.servers": "localhost", "subscribe": "clicks, views"}
    >>> parse_read_options(given, is_stream=False).selection
    Subscribe(topics=('clicks', 'views'))
    """
    given = canonical_options(options, is_stream=is_stream)
    default_start = Edge.LATEST if is_stream else Edge.EARLIEST
    strategy = given.get("startingOffsetsByTimestampStrategy", "latest")
    read = ReadOptions(
        servers=parse_brokers("millrace.servers", given.get("millrace.servers")),
        selection=_selection(given),
        credentials=parse_credentials(given),
        start=_bound(given, "starting", default_start),
        end=_bound(given, "ending", Edge.LATEST),
        start_must_match=(
            parse_word("startingOffsetsByTimestampStrategy", strategy, ("latest", "error"))
            == "error"
        ),
        fail_on_data_loss=_flag(given, "failOnDataLoss", default=True),
        min_partitions=_count(given, "minPartitions", maximum=PARTITIONS_MAX),
        max_records_per_partition=_count(given, "maxRecordsPerPartition"),
        max_partition_bytes=parse_bytes(
            "maxPartitionBytes", given.get("maxPartitionBytes", "128m")
        ),
        include_headers=_flag(given, "includeHeaders", default=False),
        value_format=parse_word(
            "valueFormat", given.get("valueFormat", "binary"), ("binary", "json")
        ),
        record_prefix=given.get("recordPrefix", ""),
        deadline_ms=parse_count(
            "deadlineMs",
            given.get("deadlineMs", "30000"),
            minimum=DEADLINE_MS_MIN,
            maximum=DEADLINE_MS_MAX,
        ),
        push_filters=_flag(given, "pushFilters", default=False),
        commit_group=_group(given),
        max_offsets_per_trigger=_count(given, "maxOffsetsPerTrigger"),
        min_offsets_per_trigger=_count(given, "minOffsetsPerTrigger"),
        max_bytes_per_trigger=(
            parse_bytes("maxBytesPerTrigger", given["maxBytesPerTrigger"])
            if "maxBytesPerTrigger" in given
            else None
        ),
        max_trigger_delay_ms=parse_duration_ms(
            "maxTriggerDelay", given.get("maxTriggerDelay", "15m")
        ),
    )
    if not is_stream:
        check_batch_bounds(read.start, read.end)
    _check_named(read)
    _check_rate_limit(read)
    if read.record_prefix and read.value_format != "json":
        raise OptionError("recordPrefix", "is for valueFormat=json; set that, or remove it")
    return read


def _selection(given: Mapping[str, str]) -> Selection:
    names = [name for name in OPTIONS if name in given]
    if not names:
        raise OptionError("subscribe", f"is missing; name topics with one of {', '.join(OPTIONS)}")
    if len(names) > 1:
        raise OptionError(names[1], f"conflicts with {names[0]}; keep one of them")
    return parse_selection(names[0], given[names[0]])


def _bound(given: Mapping[str, str], side: str, default: Edge) -> Bound:
    """The bound with precedence, in Kafka's order; the others must be valid too."""
    bounds: list[Bound] = []
    for name, parse in (
        (f"{side}Timestamp", parse_time),
        (f"{side}OffsetsByTimestamp", parse_times),
        (f"{side}Offsets", parse_offsets),
    ):
        if name in given:
            bounds.append(parse(name, given[name]))
    return bounds[0] if bounds else default


def _group(given: Mapping[str, str]) -> str | None:
    group = given.get("commitGroup")
    if group is not None and not group.strip():
        raise OptionError("commitGroup", "is empty; name a group, or remove it")
    return group


def _count(given: Mapping[str, str], name: str, **limits: int) -> int | None:
    return parse_count(name, given[name], **limits) if name in given else None


def _flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    return parse_flag(name, given[name]) if name in given else default


def _check_named(read: ReadOptions) -> None:
    """Raises `OptionError` for a bound of a partition that the read does not select."""
    for bound, is_start in ((read.start, True), (read.end, False)):
        for topic, partition, _ in named_partitions(bound):
            if not read.selection.selects(topic, partition):
                raise OptionError(
                    option_of(bound, is_start=is_start),
                    f"names {topic}-{partition}, which {read.selection} does not select",
                )


def _check_rate_limit(read: ReadOptions) -> None:
    least, most = read.min_offsets_per_trigger, read.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise OptionError(
            "minOffsetsPerTrigger", f"{least} is more than maxOffsetsPerTrigger, {most}; lower it"
        )
