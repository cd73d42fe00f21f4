"""The options of a write: those it takes, and the messages about the others."""

from __future__ import annotations

import pytest

from millrace_spark import OptionError, SchemaError
from millrace_spark.options.write_options import WriteOptions, parse_write_options
from millrace_spark.writing.write_schema import HEADERS, check_frame

SERVERS = {"millrace.servers": "localhost:9092"}


def test_names_are_taken_in_any_case_and_the_rest_has_defaults() -> None:
    given = {"MILLRACE.SERVERS": "a:1,b", "Topic": "clicks"}
    assert parse_write_options(given, is_stream=False) == WriteOptions(
        servers="a:1,b", topic="clicks", compression="none", deadline_ms=30_000
    )
    given = {**SERVERS, "compression": "ZSTD", "deadlineMs": "500", "includeHeaders": "true"}
    assert parse_write_options(given, is_stream=True) == WriteOptions(
        servers="localhost:9092", topic=None, compression="zstd", deadline_ms=500
    )


def test_a_stream_may_say_where_its_checkpoint_is_and_a_batch_may_not() -> None:
    given = {**SERVERS, "checkpointLocation": "/c", "queryName": "q"}
    assert parse_write_options(given, is_stream=True).servers == "localhost:9092"
    with pytest.raises(OptionError, match="checkpointLocation: is for streams"):
        parse_write_options(given, is_stream=False)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, r"^millrace\.servers: is missing; name the brokers"),
        ({"millrace.servers": "a:x"}, r"^millrace\.servers: 'a:x' has no port"),
        ({"kafka.bootstrap.servers": "a:1"}, r"name Millrace's with millrace\.servers$"),
        ({**SERVERS, "kafka.acks": "1"}, r"^kafka\.acks: every row is written with acks=all"),
        ({**SERVERS, "kafka.linger.ms": "1"}, r"^kafka\.linger\.ms: is a setting of Kafka's"),
        ({**SERVERS, "subscribe": "t"}, r"^subscribe: is an option of reads; remove it"),
        ({**SERVERS, "maxBytesPerTrigger": "1m"}, r"is an option of reads"),
        ({**SERVERS, "path": "t"}, r"^path: there are no paths; .*call save\(\) bare$"),
        ({**SERVERS, "topics": "t"}, r"^topics: no such option; did you mean topic\?$"),
        ({**SERVERS, "xyzzy": "t"}, r"^xyzzy: no such option; there are millrace\.servers, topic"),
        ({**SERVERS, "topic": " "}, r"^topic: is empty; name a topic, or remove it"),
        ({**SERVERS, "compression": "brotli"}, r"^compression: 'brotli' is not none or gzip"),
        ({**SERVERS, "deadlineMs": "1"}, r"^deadlineMs: '1' is not a whole number from 100"),
        ({**SERVERS, "includeHeaders": "yes"}, r"^includeHeaders: 'yes' is not true or false$"),
    ],
)
def test_an_option_that_cannot_work_is_refused_by_name(
    given: dict[str, str], sentence: str
) -> None:
    for is_stream in (False, True):
        with pytest.raises(OptionError, match=sentence):
            parse_write_options(given, is_stream=is_stream)


def test_records_are_made_of_kafkas_columns_and_others_are_left_out() -> None:
    read = [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", HEADERS),
    ]
    columns = check_frame(read, topic=None)
    assert columns == ("key", "value", "topic", "partition", "headers")
    assert check_frame(read, topic="clicks") == ("key", "value", "partition", "headers")
    assert check_frame([("value", "string collate UNICODE")], topic="clicks") == ("value",)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ([("key", "string")], r"^value: there is no such column, only key; to_json"),
        ([("value", "struct<a:int>")], r"^value: must be binary or string, and is struct<a:int>; "),
        ([("value", "string"), ("key", "bigint")], r"^key: .* is bigint; cast it to string"),
        ([("value", "string"), ("partition", "bigint")], r"^partition: must be int, .*cast it"),
        ([("value", "string"), ("topic", "int")], r"^topic: must be string"),
        ([("value", "string"), ("headers", "map<string,binary>")], r"^headers: must be array<"),
        ([("value", "string"), ("value", "string")], r"^value: two columns"),
    ],
)
def test_a_column_that_no_record_can_be_made_of_is_named(
    fields: list[tuple[str, str]], sentence: str
) -> None:
    with pytest.raises(SchemaError, match=sentence):
        check_frame(fields, topic="clicks")


def test_rows_that_name_no_topic_need_the_option() -> None:
    with pytest.raises(SchemaError, match=r"^topic: there is no such column, only value, nor an"):
        check_frame([("value", "string")], topic=None)
