"""Fetches as Arrow batches: their parts, and timestamps that Spark cannot hold."""

from __future__ import annotations

from typing import Any

import pytest

from millrace._arrow import columns as arrow_columns
from millrace._arrow.columns import (
    arrow_batches,
)
from millrace.errors import CorruptMessage
from millrace.records import RecordBatch, TopicPartition
from millrace_protocol.records import check_batches, encode_batch
from millrace_protocol.records.arrow import ArrowFetch
from millrace_spark.reading.schema import COLUMNS


def test_a_large_fetch_is_decoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"".join(
        encode_batch(
            [b"%d" % n for n in range(first, first + 10)], timestamps_ms=7, base_offset=first
        )
        for first in range(0, 100, 10)
    )
    positions, _ = check_batches(data)
    fetch: RecordBatch = RecordBatch(
        TopicPartition("t", 0), data, base_offset=5, next_offset=100, positions=positions
    )
    counts: list[int] = []

    class Counted(ArrowFetch):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            counts.append(self.count)

    monkeypatch.setattr(arrow_columns, "ArrowFetch", Counted)
    monkeypatch.setattr(arrow_columns, "DECODED_RECORDS_MAX", 30)
    batches = list(arrow_batches(fetch, columns=("offset", "value"), end_offset=63))
    assert counts == [30, 30, 10], "what is behind the range is not decoded"
    assert [row for batch in batches for row in batch.to_pylist()] == [
        {"offset": n, "value": b"%d" % n} for n in range(5, 63)
    ]


def test_a_timestamp_out_of_sparks_range_leaves_the_other_columns_readable() -> None:
    data = bytes(encode_batch([b"x"], timestamps_ms=2**62))
    fetch: RecordBatch = RecordBatch(TopicPartition("t", 0), data, base_offset=0, next_offset=1)
    with pytest.raises(CorruptMessage, match=r"t-0: timestamp has a value.*Leave the column out"):
        list(arrow_batches(fetch, columns=("timestamp",), end_offset=1))
    (batch,) = arrow_batches(fetch, columns=("value",), end_offset=1)
    assert batch.column("value").to_pylist() == [b"x"]


@pytest.mark.parametrize("good", [0, 1, 2])
def test_only_records_of_the_range_have_to_fit_into_spark(good: int) -> None:
    times = [2**62] * 3
    times[good] = 7
    data = bytes(encode_batch([b"0", b"1", b"2"], timestamps_ms=times))
    fetch: RecordBatch = RecordBatch(TopicPartition("t", 0), data, base_offset=good, next_offset=3)
    (batch,) = arrow_batches(fetch, columns=tuple(COLUMNS), end_offset=good + 1)
    (row,) = batch.to_pylist()
    assert (row["offset"], row["value"]) == (good, b"%d" % good)
    assert batch.column("timestamp").cast("int64").to_pylist() == [7000]
