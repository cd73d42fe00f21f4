"""Options, bounds, schema and ranges: what can be known without a broker."""

from __future__ import annotations

import doctest
import pickle
import subprocess
import sys
from importlib.util import find_spec
from itertools import pairwise
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.records import TopicPartition
from millrace_spark import bounds, options
from millrace_spark.bounds import AtOffsets, AtTime, Bound, Edge, parse_bound
from millrace_spark.errors import DataLost, OptionError, SchemaError
from millrace_spark.options import OnDataLoss, ReadOptions, parse_read_options
from millrace_spark.ranges import LogExtent, OffsetRange, plan_ranges, split
from millrace_spark.schema import COLUMNS, check_columns

CLICKS_0 = TopicPartition("clicks", 0)
NEEDED = {"servers": "localhost:9092", "topic": "clicks"}


def test_servers_and_topic_suffice() -> None:
    assert parse_read_options(NEEDED) == ReadOptions(
        servers="localhost:9092", topics=("clicks",), start=Edge.EARLIEST, end=Edge.LATEST
    )


def test_options_are_read_in_any_case_as_spark_hands_them_over() -> None:
    read = parse_read_options(
        {
            "SERVERS": "a:1,b:2",
            "Topic": "clicks, views",
            "Start": "Earliest",
            "max_Offsets_per_partition": "1000",
            "on_data_loss": "SKIP",
            "deadline_ms": "500",
        }
    )
    assert read == ReadOptions(
        servers="a:1,b:2",
        topics=("clicks", "views"),
        max_offsets_per_partition=1000,
        on_data_loss="skip",
        deadline_ms=500,
    )


@pytest.mark.parametrize(
    ("given_options", "option", "reason"),
    [
        ({"topic": "clicks"}, "servers", "is missing"),
        ({"servers": "localhost"}, "topic", "is missing"),
        ({**NEEDED, "servers": "localhost:http"}, "servers", "no port"),
        ({**NEEDED, "topic": "clicks,,views"}, "topic", "empty name"),
        ({**NEEDED, "topic": "clicks,clicks"}, "topic", "twice"),
        ({**NEEDED, "strat": "earliest"}, "strat", "did you mean start?"),
        ({**NEEDED, "path": "clicks"}, "path", "no paths"),
        ({**NEEDED, "on_data_loss": "ignore"}, "on_data_loss", "not fail or skip"),
        ({**NEEDED, "deadline_ms": "99"}, "deadline_ms", "whole number from 100"),
        ({**NEEDED, "deadline_ms": "1.5e3"}, "deadline_ms", "whole number from 100"),
        ({**NEEDED, "max_offsets_per_partition": "-1"}, "max_offsets_per_partition", "from 1"),
        ({**NEEDED, "start": "yesterday"}, "start", "is not earliest, latest"),
        ({**NEEDED, "start": "2026-01-31T12:00:00"}, "start", "no time zone"),
        ({**NEEDED, "end": "1969-12-31T23:59:59Z"}, "end", "before 1970"),
        ({**NEEDED, "end": "9" * 30}, "end", "beyond"),
        ({**NEEDED, "start": "{"}, "start", "not JSON"),
        ({**NEEDED, "start": '{"clicks": 5}'}, "start", "object of partitions"),
        ({**NEEDED, "start": '{"clicks": {"x": 5}}'}, "start", "not a partition number"),
        ({**NEEDED, "start": '{"clicks": {"0": -1}}'}, "start", "not an offset"),
        ({**NEEDED, "start": '{"clicks": {"0": true}}'}, "start", "not an offset"),
        ({**NEEDED, "end": '{"views": {"0": 5}}'}, "end", "not in the option topic"),
        ({**NEEDED, "start": "2000", "end": "1000"}, "start", "later than end"),
        (
            {**NEEDED, "start": '{"clicks": {"0": 6}}', "end": '{"clicks": {"0": 5}}'},
            "start",
            "behind its end 5",
        ),
    ],
)
def test_a_wrong_option_is_named_with_the_reason(
    given_options: dict[str, str], option: str, reason: str
) -> None:
    with pytest.raises(OptionError) as caught:
        parse_read_options(given_options)
    assert caught.value.option == option
    assert reason in caught.value.reason
    assert str(caught.value) == f"{option}: {caught.value.reason}"


def test_errors_and_options_survive_the_way_to_a_worker() -> None:
    error = pickle.loads(pickle.dumps(OptionError("start", "is wrong")))
    assert (error.option, error.reason) == ("start", "is wrong")
    read = parse_read_options({**NEEDED, "start": '{"clicks": {"0": 6}}', "end": "5000"})
    assert pickle.loads(pickle.dumps(read)) == read


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("LATEST", Edge.LATEST),
        ("1700000000000", AtTime(1_700_000_000_000)),
        ("2023-11-14T22:13:20Z", AtTime(1_700_000_000_000)),
        ("2023-11-14T23:13:20.250+01:00", AtTime(1_700_000_000_250)),
        ('{"clicks": {"0": 23, "1": 0}}', AtOffsets({"clicks": {0: 23, 1: 0}})),
    ],
)
def test_a_bound_can_be_said_in_several_ways(text: str, bound: Bound) -> None:
    assert parse_bound("start", text) == bound


def ranges_of(
    extent: LogExtent,
    *,
    start: Bound = Edge.EARLIEST,
    end: Bound = Edge.LATEST,
    on_data_loss: OnDataLoss = "fail",
) -> list[tuple[int, int]]:
    """`(start_offset, end_offset)` of the plan for one partition."""
    ranges = plan_ranges(
        {CLICKS_0: extent},
        start=start,
        end=end,
        on_data_loss=on_data_loss,
        max_offsets_per_partition=None,
    )
    return [(found.start_offset, found.end_offset) for found in ranges]


def at(offset: int) -> AtOffsets:
    """A bound at an offset of partition 0."""
    return AtOffsets({"clicks": {0: offset}})


def test_a_read_covers_what_the_log_holds() -> None:
    assert ranges_of(LogExtent("id", 3, 10)) == [(3, 10)]
    assert ranges_of(LogExtent("id", 10, 10)) == []
    assert ranges_of(LogExtent("id", 3, 10), start=Edge.LATEST) == []


def test_a_partition_that_the_offsets_do_not_name_is_read_to_its_edges() -> None:
    others = AtOffsets({"clicks": {1: 5}})
    assert ranges_of(LogExtent("id", 3, 10), start=others, end=others) == [(3, 10)]


def test_a_time_later_than_every_record_means_the_end() -> None:
    assert ranges_of(LogExtent("id", 3, 10, start_found=-1), start=AtTime(9)) == []
    assert ranges_of(LogExtent("id", 3, 10, end_found=-1), end=AtTime(9)) == [(3, 10)]


def test_a_record_written_while_planning_is_not_read() -> None:
    assert ranges_of(LogExtent("id", 3, 10, end_found=11), end=AtTime(9)) == [(3, 10)]


@pytest.mark.parametrize(
    ("start", "end", "gone", "skipped"),
    [
        (at(0), Edge.LATEST, r"records \[0, 3\) are gone.*retention", [(3, 10)]),
        (at(0), at(2), r"records \[0, 2\) are gone.*retention", []),
        (at(12), Edge.LATEST, r"records \[10, 12\) are not there", []),
        (at(5), at(12), r"records \[10, 12\) are not there", [(5, 10)]),
    ],
)
def test_offsets_that_are_not_in_the_log_fail_or_are_skipped(
    start: Bound, end: Bound, gone: str, skipped: list[tuple[int, int]]
) -> None:
    extent = LogExtent("id", 3, 10)
    with pytest.raises(DataLost, match=gone):
        ranges_of(extent, start=start, end=end)
    assert ranges_of(extent, start=start, end=end, on_data_loss="skip") == skipped


@given(
    st.integers(0, 2**40),
    st.integers(1, 5_000),
    st.integers(1, 6_000),
)
def test_a_split_covers_the_range_in_equal_pieces(
    start_offset: int, length: int, max_offsets: int
) -> None:
    whole = OffsetRange("clicks", "id", 0, start_offset, start_offset + length)
    pieces = list(split(whole, max_offsets))
    assert pieces[0].start_offset == whole.start_offset
    assert pieces[-1].end_offset == whole.end_offset
    assert all(a.end_offset == b.start_offset for a, b in pairwise(pieces))
    lengths = [len(piece) for piece in pieces]
    assert 1 <= min(lengths) <= max(lengths) <= max_offsets
    assert max(lengths) - min(lengths) <= 1


def test_a_split_into_too_many_tasks_is_refused_before_it_is_made() -> None:
    with pytest.raises(OptionError, match="max_offsets_per_partition: 1 makes more than 100000"):
        plan_ranges(
            {CLICKS_0: LogExtent("id", 0, 2**40)},
            start=Edge.EARLIEST,
            end=Edge.LATEST,
            on_data_loss="fail",
            max_offsets_per_partition=1,
        )


def test_a_schema_may_name_fewer_columns_in_another_order() -> None:
    assert check_columns([("value", "binary", True), ("offset", "bigint", True)]) == (
        "value",
        "offset",
    )
    assert check_columns((name, kind, True) for name, kind in COLUMNS.items()) == tuple(COLUMNS)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ([("vlaue", "binary", True)], "no column 'vlaue'; there are topic string"),
        ([("value", "string", True)], "value is binary and not string"),
        ([("value", "binary", False)], "leave it nullable"),
        ([("value", "binary", True), ("value", "binary", True)], "named twice"),
        ([], "at least one column"),
    ],
)
def test_a_schema_that_cannot_be_read_is_refused(
    fields: list[tuple[str, str, bool]], reason: str
) -> None:
    with pytest.raises(SchemaError, match=reason):
        check_columns(fields)


def test_importing_the_package_imports_neither_spark_nor_arrow() -> None:
    program = (
        "import sys, millrace_spark; "
        "print([name for name in ('pyspark', 'pyarrow', 'numpy') if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout == "[]\n"


@pytest.mark.parametrize("module", [bounds, options])
def test_what_the_documentation_shows_is_true(module: ModuleType) -> None:
    failed, attempted = doctest.testmod(module)
    assert (failed, attempted > 0) == (0, True)


def test_the_module_that_spark_looks_for_is_at_top_level() -> None:
    assert find_spec("pyspark_millrace") is not None
