"""The options of a read, its bounds and its schema, without a broker."""

from __future__ import annotations

import doctest
import pickle
import subprocess
import sys
from importlib.util import find_spec
from types import ModuleType

import pytest

from millrace.errors import SchemaError
from millrace_spark.errors import OptionError
from millrace_spark.options import bounds, option_parsing, read_options, selection
from millrace_spark.options.bounds import AtOffsets, AtTime, AtTimes, Bound, Edge
from millrace_spark.options.option_names import BATCH_ONLY, BOTH, STREAM_ONLY
from millrace_spark.options.read_options import ReadOptions, parse_read_options
from millrace_spark.options.selection import Assign, Subscribe, SubscribePattern
from millrace_spark.reading.schema import COLUMNS, check_columns, columns_of, schema_of

SERVERS = {"millrace.servers": "localhost:9092"}
NEEDED = {**SERVERS, "subscribe": "clicks"}


def batch(**given: str) -> ReadOptions:
    """The options of a batch read of `clicks` with these beside."""
    return parse_read_options({**NEEDED, **given}, is_stream=False)


def stream(**given: str) -> ReadOptions:
    """The options of a stream of `clicks` with these beside."""
    return parse_read_options({**NEEDED, **given}, is_stream=True)


def test_servers_and_topics_suffice() -> None:
    clicks = Subscribe(("clicks",))
    assert batch() == ReadOptions(servers="localhost:9092", selection=clicks)
    assert (batch().start, batch().end) == (Edge.EARLIEST, Edge.LATEST)
    assert stream().start is Edge.LATEST


def test_options_are_read_in_any_case_as_spark_hands_them_over() -> None:
    given = {
        "millrace.SERVERS": "a:1,b:2",
        "SUBSCRIBE": "clicks",
        "startingoffsets": "Earliest",
        "maxrecordsperpartition": "1000",
        "failondataloss": "FALSE",
        "deadlinems": "500",
    }
    assert parse_read_options(given, is_stream=False) == ReadOptions(
        servers="a:1,b:2",
        selection=Subscribe(("clicks",)),
        max_records_per_partition=1000,
        fail_on_data_loss=False,
        deadline_ms=500,
    )


def test_subscribe_same_as_kafka() -> None:
    assert batch(subscribe=" clicks, views,,clicks ").selection == Subscribe(("clicks", "views"))


def test_subscribe_pattern_same_as_kafka() -> None:
    given = {**SERVERS, "subscribePattern": r" ^clicks-\d+$|__.*"}
    pattern = parse_read_options(given, is_stream=False).selection
    assert isinstance(pattern, SubscribePattern)
    names = ["clicks-2", "clicks-10", "my-clicks-1", "clicks-1-old", "__consumer_offsets"]
    assert pattern.topics_of(names) == ("clicks-10", "clicks-2")
    assert SubscribePattern("clicks-1").topics_of(names) == (
        "clicks-1-old",
        "clicks-10",
        "my-clicks-1",
    )
    assert not pattern.selects("clicks-٣", 0)  # Java's \d is ASCII


def test_assign_same_as_kafka() -> None:
    given = {**SERVERS, "assign": '{"clicks": [2, 0, 2], "views": [1]}'}
    chosen = parse_read_options(given, is_stream=False).selection
    assert chosen == Assign({"clicks": (0, 2), "views": (1,)})
    assert [chosen.selects("clicks", partition) for partition in range(3)] == [True, False, True]


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("EARLIEST", Edge.EARLIEST),
        ('{"clicks": {"0": 23, "1": -2}}', AtOffsets({"clicks": {0: 23, 1: -2}})),
    ],
)
def test_starting_offsets_same_as_kafka(text: str, bound: Bound) -> None:
    assert batch(startingOffsets=text).start == stream(startingOffsets=text).start == bound


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("latest", Edge.LATEST),
        ('{"clicks": {"0": 23, "1": -1}}', AtOffsets({"clicks": {0: 23, 1: -1}})),
    ],
)
def test_ending_offsets_same_as_kafka(text: str, bound: Bound) -> None:
    assert batch(endingOffsets=text).end == bound


@pytest.mark.parametrize(
    ("text", "timestamp_ms"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T23:13:20.250+01:00", 1_700_000_000_250),
    ],
)
def test_starting_and_ending_timestamp_same_as_kafka_and_iso_8601_beside(
    text: str, timestamp_ms: int
) -> None:
    assert batch(startingTimestamp=text).start == AtTime(timestamp_ms)
    assert batch(endingTimestamp=text).end == AtTime(timestamp_ms)


def test_starting_and_ending_offsets_by_timestamp_same_as_kafka() -> None:
    times = '{"clicks": {"0": 1000, "1": 2000}}'
    read = batch(startingOffsetsByTimestamp=times, endingOffsetsByTimestamp=times)
    assert read.start == read.end == AtTimes({"clicks": {0: 1000, 1: 2000}})


def test_the_precedence_of_bounds_same_as_kafka() -> None:
    offsets = {"startingOffsets": "latest", "endingOffsets": "earliest"}
    times = {side + "OffsetsByTimestamp": '{"clicks": {"0": 5}}' for side in ("starting", "ending")}
    time = {"startingTimestamp": "7", "endingTimestamp": "9"}
    read = batch(**offsets, **times)
    assert read.start == read.end == AtTimes({"clicks": {0: 5}})
    read = batch(**offsets, **times, **time)
    assert (read.start, read.end) == (AtTime(7), AtTime(9))


def test_starting_offsets_by_timestamp_strategy_has_kafkas_words() -> None:
    assert not batch().start_must_match
    assert batch(startingOffsetsByTimestampStrategy="Error").start_must_match
    assert not batch(startingOffsetsByTimestampStrategy="latest").start_must_match


def test_fail_on_data_loss_and_include_headers_same_as_kafka() -> None:
    assert (batch().fail_on_data_loss, batch().include_headers) == (True, False)
    read = batch(failOnDataLoss="false", includeHeaders="true")
    assert (read.fail_on_data_loss, read.include_headers) == (False, True)


def test_min_partitions_and_max_records_per_partition_same_as_kafka() -> None:
    read = batch(minPartitions="6", maxRecordsPerPartition="1000")
    assert (read.min_partitions, read.max_records_per_partition) == (6, 1000)


def test_limits_of_a_trigger_same_as_kafka() -> None:
    read = stream(maxOffsetsPerTrigger="100", minOffsetsPerTrigger="10", maxTriggerDelay="5m")
    assert (read.max_offsets_per_trigger, read.min_offsets_per_trigger) == (100, 10)
    assert read.max_trigger_delay_ms == 300_000
    assert stream().max_trigger_delay_ms == 900_000


def test_options_of_millrace_alone() -> None:
    read = batch(maxPartitionBytes="64m", valueFormat="json", pushFilters="true")
    assert (read.max_partition_bytes, read.value_format, read.push_filters) == (
        64 * 1024 * 1024,
        "json",
        True,
    )
    read = stream(maxBytesPerTrigger="512k", commitGroup="reports")
    assert (read.max_bytes_per_trigger, read.commit_group) == (512 * 1024, "reports")


WRONG = [
    ({"subscribe": "clicks"}, "millrace.servers", "is missing; name the brokers"),
    ({**NEEDED, "millrace.servers": "localhost:http"}, "millrace.servers", "no port"),
    ({**NEEDED, "kafka.bootstrap.servers": "a:1"}, "kafka.bootstrap.servers", "millrace.servers"),
    ({**NEEDED, "kafka.group.id": "g"}, "kafka.group.id", "joins no group"),
    ({**NEEDED, "groupIdPrefix": "g"}, "groupIdPrefix", "joins no group"),
    ({**NEEDED, "kafka.security.protocol": "SSL"}, "kafka.security.protocol", "with tls://"),
    ({**NEEDED, "kafka.fetch.max.bytes": "1"}, "kafka.fetch.max.bytes", "Kafka's client"),
    ({**NEEDED, "kafkaConsumer.pollTimeoutMs": "1"}, "kafkaConsumer.pollTimeoutMs", "deadlineMs"),
    ({**NEEDED, "fetchOffset.numRetries": "1"}, "fetchOffset.numRetries", "deadlineMs"),
    (SERVERS, "subscribe", "one of subscribe, subscribePattern, assign"),
    ({**NEEDED, "assign": '{"a": [0]}'}, "assign", "conflicts with subscribe"),
    ({**NEEDED, "subscribe": " , "}, "subscribe", "names no topic"),
    ({**SERVERS, "subscribePattern": "a("}, "subscribePattern", "not a regular expression"),
    ({**SERVERS, "subscribePattern": " "}, "subscribePattern", "is empty"),
    ({**SERVERS, "assign": "clicks"}, "assign", 'not JSON such as {"clicks": [0, 1]}'),
    ({**SERVERS, "assign": "{}"}, "assign", "is not JSON such as"),
    ({**SERVERS, "assign": '{"clicks": [-1]}'}, "assign", "clicks needs a list of partitions"),
    ({**NEEDED, "strtingOffsets": "earliest"}, "strtingOffsets", "did you mean startingOffsets?"),
    ({**NEEDED, "servers": "a:1"}, "servers", "did you mean millrace.servers?"),
    ({**NEEDED, "zzz": "1"}, "zzz", "no such option; there are millrace.servers, subscribe"),
    ({**NEEDED, "topic": "clicks"}, "topic", "with subscribe"),
    ({**NEEDED, "path": "clicks"}, "path", "no paths"),
    ({**NEEDED, "failOnDataLoss": "ignore"}, "failOnDataLoss", "not true or false"),
    ({**NEEDED, "deadlineMs": "99"}, "deadlineMs", "whole number from 100"),
    ({**NEEDED, "deadlineMs": "1.5e3"}, "deadlineMs", "whole number from 100"),
    ({**NEEDED, "minPartitions": "0"}, "minPartitions", "whole number from 1"),
    ({**NEEDED, "maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition", "from 1"),
    ({**NEEDED, "maxPartitionBytes": "0"}, "maxPartitionBytes", "not a size"),
    ({**NEEDED, "maxPartitionBytes": "1 parsec"}, "maxPartitionBytes", "not a size"),
    ({**NEEDED, "valueFormat": "avro"}, "valueFormat", "not binary or json"),
    ({**NEEDED, "pushFilters": "yes"}, "pushFilters", "not true or false"),
    ({**NEEDED, "startingOffsets": "yesterday"}, "startingOffsets", "is not earliest, latest"),
    ({**NEEDED, "startingOffsets": "1700000000000"}, "startingOffsets", "into startingTimestamp"),
    ({**NEEDED, "endingOffsets": "9"}, "endingOffsets", "a time goes into endingTimestamp"),
    ({**NEEDED, "startingTimestamp": "2026-01-31T12:00:00"}, "startingTimestamp", "no time zone"),
    ({**NEEDED, "endingTimestamp": "1969-12-31T23:59:59Z"}, "endingTimestamp", "before 1970"),
    ({**NEEDED, "endingTimestamp": "9" * 5000}, "endingTimestamp", "more than a timestamp"),
    ({**NEEDED, "startingOffsets": "{"}, "startingOffsets", "is not JSON such as"),
    ({**NEEDED, "startingOffsets": '{"clicks": 5}'}, "startingOffsets", "object of partitions"),
    ({**NEEDED, "startingOffsets": '{"clicks": {"x": 5}}'}, "startingOffsets", "not a partition"),
    ({**NEEDED, "startingOffsets": '{"clicks": {"0": -3}}'}, "startingOffsets", "not an offset"),
    ({**NEEDED, "startingOffsets": '{"clicks": {"0": true}}'}, "startingOffsets", "not an offset"),
    (
        {**NEEDED, "startingOffsetsByTimestamp": '{"clicks": {"0": -1}}'},
        "startingOffsetsByTimestamp",
        "use milliseconds",
    ),
    (
        {**NEEDED, "startingOffsetsByTimestamp": "5"},
        "startingOffsetsByTimestamp",
        "not a JSON object",
    ),
    ({**NEEDED, "endingOffsets": '{"views": {"0": 5}}'}, "endingOffsets", "subscribe does not"),
    (
        {**SERVERS, "assign": '{"clicks": [0]}', "startingOffsets": '{"clicks": {"1": 5}}'},
        "startingOffsets",
        "names clicks-1, which assign does not select",
    ),
    (
        {**NEEDED, "startingTimestamp": "2000", "endingTimestamp": "1000"},
        "startingTimestamp",
        "later than endingTimestamp",
    ),
    (
        {
            **NEEDED,
            "startingOffsets": '{"clicks": {"0": 6}}',
            "endingOffsets": '{"clicks": {"0": 5}}',
        },
        "startingOffsets",
        "behind its end 5",
    ),
]


@pytest.mark.parametrize(("given_options", "option", "reason"), WRONG)
def test_a_wrong_option_is_named_with_the_reason(
    given_options: dict[str, str], option: str, reason: str
) -> None:
    with pytest.raises(OptionError) as caught:
        parse_read_options(given_options, is_stream=False)
    assert caught.value.option == option
    assert reason in caught.value.reason
    assert str(caught.value) == f"{option}: {caught.value.reason}"


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("startingOffsets", "latest", "cannot be latest in a batch"),
        ("startingOffsets", '{"clicks": {"0": -1}}', "-1 for clicks-0 means latest"),
        ("endingOffsets", "earliest", "cannot be earliest"),
        ("endingOffsets", '{"clicks": {"0": -2}}', "-2 for clicks-0 means earliest"),
    ],
)
def test_bounds_that_hold_nothing_are_refused_in_a_batch_same_as_kafka(
    name: str, text: str, reason: str
) -> None:
    with pytest.raises(OptionError, match=reason):
        batch(**{name: text})


@pytest.mark.parametrize("name", BATCH_ONLY)
def test_an_option_of_batches_says_so_in_a_stream(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name}: is for batch reads"):
        stream(**{name.lower(): "latest"})


@pytest.mark.parametrize("name", STREAM_ONLY)
def test_an_option_of_streams_says_so_in_a_batch(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name}: is for streams"):
        batch(**{name.lower(): "1"})


def test_a_trigger_cannot_wait_for_more_than_it_may_take() -> None:
    with pytest.raises(OptionError, match="minOffsetsPerTrigger: 10 is more than max"):
        stream(minOffsetsPerTrigger="10", maxOffsetsPerTrigger="9")


def test_errors_and_options_survive_the_way_to_a_worker() -> None:
    error = pickle.loads(pickle.dumps(OptionError("startingOffsets", "is wrong")))
    assert (error.option, error.reason) == ("startingOffsets", "is wrong")
    read = batch(startingOffsets='{"clicks": {"0": 6}}', endingTimestamp="5000")
    assert pickle.loads(pickle.dumps(read)) == read


def test_the_columns_same_as_kafka() -> None:
    kafka = "key binary, value binary, topic string, partition int, offset bigint, "
    kafka += "timestamp timestamp, timestampType int"
    assert schema_of(NEEDED) == kafka
    headers = ", headers array<struct<key:string,value:binary>>"
    assert schema_of({**NEEDED, "includeHeaders": "true"}) == kafka + headers


def test_the_schema_is_the_same_for_a_stream_of_which_spark_does_not_say_that_it_is_one() -> None:
    assert schema_of({**NEEDED, "startingOffsets": "latest"}) == schema_of(NEEDED)
    assert schema_of({**NEEDED, "maxOffsetsPerTrigger": "5"}) == schema_of(NEEDED)
    with pytest.raises(OptionError, match="startingOffsets: 'soon' is not earliest"):
        schema_of({**NEEDED, "startingOffsets": "soon"})


def test_values_in_json_need_a_schema() -> None:
    with pytest.raises(OptionError, match=r"valueFormat: json needs the fields.*\.schema\("):
        schema_of({**NEEDED, "valueFormat": "json"})


def test_a_schema_may_name_fewer_columns_in_another_order() -> None:
    fields = [("value", "binary", True), ("offset", "bigint", True)]
    assert check_columns(fields, batch()) == ("value", "offset")
    read = batch(includeHeaders="true")
    assert check_columns([(*item, True) for item in COLUMNS.items()], read) == tuple(COLUMNS)
    assert tuple(columns_of(read)) == tuple(COLUMNS)


def test_fields_of_json_may_be_beside_columns_of_the_record() -> None:
    fields = [("offset", "bigint", True), ("user", "string", True)]
    assert check_columns(fields, batch(valueFormat="json")) == ("offset", "user")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ([("vlaue", "binary", True)], "no column 'vlaue'; there are key binary"),
        ([("value", "string", True)], "value is binary and not string"),
        ([("value", "binary", False)], "leave it nullable"),
        ([("value", "binary", True), ("value", "binary", True)], "named twice"),
        ([("headers", COLUMNS["headers"], True)], "needs the option includeHeaders"),
        ([], "at least one column"),
    ],
)
def test_a_schema_that_cannot_be_read_is_refused(
    fields: list[tuple[str, str, bool]], reason: str
) -> None:
    with pytest.raises(SchemaError, match=reason):
        check_columns(fields, batch())


def test_a_field_of_json_cannot_have_the_name_of_a_column_of_the_record() -> None:
    with pytest.raises(SchemaError, match="timestamp is a column of the record"):
        check_columns([("timestamp", "string", True)], batch(valueFormat="json"))


def test_importing_the_package_imports_neither_spark_nor_arrow() -> None:
    program = (
        "import sys, millrace_spark; "
        "print([name for name in ('pyspark', 'pyarrow', 'numpy') if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout == "[]\n"


def test_every_option_is_of_one_kind() -> None:
    names = [*BOTH, *BATCH_ONLY, *STREAM_ONLY]
    assert len({name.lower() for name in names}) == len(names)


@pytest.mark.parametrize("module", [bounds, read_options, option_parsing, selection])
def test_the_examples_in_docstrings_are_true(module: ModuleType) -> None:
    failed, attempted = doctest.testmod(module)
    assert (failed, attempted > 0) == (0, True)


def test_the_module_that_spark_looks_for_is_at_top_level() -> None:
    assert find_spec("pyspark_millrace") is not None
