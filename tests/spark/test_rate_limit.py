"""The document of a checkpoint, the shares of a micro-batch, and the position after a restart."""

from __future__ import annotations

import doctest
import json
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.records import TopicPartition
from millrace_spark.errors import OptionError
from millrace_spark.options.bounds import TOPIC_IDS
from millrace_spark.streaming import rate_limit, stream_offsets
from millrace_spark.streaming.offset_validation import Extents, new_partitions, validate
from millrace_spark.streaming.rate_limit import (
    Backlog,
    Step,
    is_due,
    limit_bytes,
    limit_records,
    shares,
)
from millrace_spark.streaming.stream_offsets import StreamOffsets, parse_document

CLICKS_0, CLICKS_1 = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
VIEWS_0 = TopicPartition("views", 0)

wheres = st.builds(
    TopicPartition, st.sampled_from(["clicks", "views", "a.b", "_x"]), st.integers(0, 12)
)
offsets_by_partition = st.dictionaries(wheres, st.integers(0, 2**63 - 1), max_size=20)


@st.composite
def stream_offsets_made(draw: st.DrawFn) -> StreamOffsets:
    """Offsets with an id for each topic, in an order of their own."""
    offsets = draw(offsets_by_partition)
    shuffled = dict(draw(st.permutations(list(offsets.items()))))
    return StreamOffsets(shuffled, {where.topic: f"id of {where.topic}" for where in shuffled})


def at(**partitions: dict[int, int]) -> StreamOffsets:
    """Offsets by topic, whose ids are their names."""
    offsets = {
        TopicPartition(topic, partition): offset
        for topic, by_partition in partitions.items()
        for partition, offset in by_partition.items()
    }
    return StreamOffsets(offsets, {topic: topic for topic in partitions})


@given(stream_offsets_made())
def test_offsets_survive_a_checkpoint(offsets: StreamOffsets) -> None:
    assert parse_document(json.loads(json.dumps(offsets.document()))) == offsets


@given(stream_offsets_made(), st.randoms(use_true_random=False))
def test_equal_offsets_are_equal_text(offsets: StreamOffsets, shuffle: Any) -> None:
    items = list(offsets.offsets.items())
    shuffle.shuffle(items)
    ids = dict(reversed(list(offsets.topic_ids.items())))
    again = StreamOffsets(dict(items), ids)
    text = json.dumps(offsets.document())
    assert json.dumps(again.document()) == text
    assert json.dumps(json.loads(text)) == text


def test_partitions_are_ordered_by_number_and_not_by_text() -> None:
    document = at(clicks={10: 1, 9: 2}).document()
    assert list(document["clicks"]) == ["9", "10"]


def test_a_checkpoint_of_the_kafka_source_is_read() -> None:
    found = parse_document({"clicks": {"0": 23, "1": 7}})
    assert found == StreamOffsets({CLICKS_0: 23, CLICKS_1: 7}, {})
    assert list(found.same_incarnation(at(clicks={0: 30, 1: 7, 2: 0}))) == [CLICKS_0, CLICKS_1]


@pytest.mark.parametrize(
    "document",
    [
        {"clicks": 5},
        {"clicks": {"x": 5}},
        {"clicks": {"0": -1}},
        {"clicks": {"0": "5"}},
        {"clicks": {"0": True}},
        {TOPIC_IDS: ["clicks"]},
        {TOPIC_IDS: {"clicks": 5}, "clicks": {"0": 5}},
        {"logOffset": 5},
    ],
)
def test_a_foreign_document_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=r"checkpointLocation: .*give this stream its own"):
        parse_document(document)


backlogs_made = st.dictionaries(
    wheres,
    st.tuples(st.integers(0, 2**40), st.integers(0, 10_000)).map(
        lambda pair: Backlog(pair[0], pair[0] + pair[1])
    ),
    max_size=20,
)


@given(backlogs_made, st.integers(1, 50_000))
def test_a_micro_batch_takes_the_limit_and_starves_no_partition(
    backlogs: dict[TopicPartition, Backlog], limit: int
) -> None:
    ends = limit_records(backlogs, limit)
    assert ends.keys() == backlogs.keys()
    taken = {where: ends[where] - backlogs[where].start_offset for where in ends}
    total = sum(map(len, backlogs.values()))
    waiting = sum(1 for backlog in backlogs.values() if len(backlog))
    assert sum(taken.values()) == min(total, max(limit, waiting))
    for where, backlog in backlogs.items():
        assert (taken[where] >= 1) == (len(backlog) >= 1)
        assert taken[where] <= len(backlog)


@given(backlogs_made, st.integers(1, 50_000))
def test_shares_are_in_proportion_to_the_backlog(
    backlogs: dict[TopicPartition, Backlog], limit: int
) -> None:
    sizes = {where: len(backlog) for where, backlog in backlogs.items() if len(backlog)}
    total = sum(sizes.values())
    taken = shares(sizes, limit)
    if total <= limit:
        assert taken == sizes
    elif limit >= len(sizes):
        for where, size in sizes.items():
            # One is given before the rest is shared out, so the first weighs a little more.
            exact = 1 + (limit - len(sizes)) * (size - 1) / (total - len(sizes))
            assert abs(taken[where] - exact) < 1 + 1e-6


@given(backlogs_made, st.integers(1, 50_000))
def test_shares_do_not_depend_on_the_order_of_the_answer(
    backlogs: dict[TopicPartition, Backlog], limit: int
) -> None:
    again = dict(reversed(backlogs.items()))
    assert limit_records(backlogs, limit) == limit_records(again, limit)


@given(backlogs_made, st.integers(1, 50_000))
def test_micro_batches_come_to_an_end(backlogs: dict[TopicPartition, Backlog], limit: int) -> None:
    left, batches = backlogs, 0
    while any(map(len, left.values())) and batches < 5:
        ends = limit_records(left, limit)
        before = sum(map(len, left.values()))
        left = {where: Backlog(ends[where], left[where].end_offset) for where in left}
        assert sum(map(len, left.values())) <= max(0, before - limit)
        batches += 1


@given(
    st.lists(st.tuples(st.integers(1, 100), st.integers(1, 10_000)), min_size=1, max_size=30),
    st.integers(1, 50_000),
)
def test_steps_are_taken_while_they_fit_and_the_first_in_any_case(
    sizes: list[tuple[int, int]], bytes_max: int
) -> None:
    steps, end_offset = [], 0
    for records, size_bytes in sizes:
        end_offset += records
        steps.append(Step(end_offset, size_bytes))
    end_offset = limit_bytes(steps, bytes_max)
    count = [step.end_offset for step in steps].index(end_offset) + 1
    taken_bytes = sum(step.size_bytes for step in steps[:count])
    assert taken_bytes <= bytes_max or count == 1
    if count < len(steps):
        assert taken_bytes + steps[count].size_bytes > bytes_max


def test_a_micro_batch_waits_for_enough_records_or_for_long_enough() -> None:
    backlogs = {CLICKS_0: Backlog(0, 5), CLICKS_1: Backlog(7, 10)}
    assert is_due(backlogs, records_min=8, waited_ms=0, delay_ms_max=1000)
    assert not is_due(backlogs, records_min=9, waited_ms=999, delay_ms_max=1000)
    assert is_due(backlogs, records_min=9, waited_ms=1000, delay_ms_max=1000)
    assert is_due(backlogs, records_min=9, waited_ms=None, delay_ms_max=1000)


def test_a_stream_goes_on_where_it_was() -> None:
    going = validate(at(clicks={0: 5, 1: 7}), Extents(at(clicks={0: 9, 1: 7})))
    assert going.offsets == at(clicks={0: 5, 1: 7})
    assert going.backlogs == {CLICKS_0: Backlog(5, 9), CLICKS_1: Backlog(7, 7)}
    assert not going.reset
    assert not going.losses


def test_a_new_partition_and_a_new_topic_begin_at_their_earliest_in_a_batch_of_their_own() -> None:
    latest = at(clicks={0: 9, 1: 4}, views={0: 30})
    start = at(clicks={0: 5})
    assert new_partitions(start, latest) == [CLICKS_1, VIEWS_0]
    going = validate(start, Extents(latest, {CLICKS_1: 0, VIEWS_0: 20}))
    assert going.offsets == at(clicks={0: 5, 1: 0}, views={0: 20})
    assert going.backlogs == {CLICKS_0: Backlog(5, 9)}
    assert going.reset == {CLICKS_1, VIEWS_0}
    assert not going.losses, "what a topic held before the stream knew it was never promised"


def test_a_new_partition_that_retention_has_cut_is_a_loss() -> None:
    going = validate(at(clicks={0: 5}), Extents(at(clicks={0: 5, 1: 9}), {CLICKS_1: 3}))
    assert [loss.split(" of this")[0] for loss in going.losses] == ["clicks-1: records [0, 3)"]


def test_a_topic_that_is_gone_is_a_loss_and_left_out() -> None:
    going = validate(at(clicks={0: 5}, views={0: 2}), Extents(at(clicks={0: 5})))
    assert going.offsets == at(clicks={0: 5})
    assert going.losses == (
        "the topic views was deleted; records that the stream had not read are gone",
    )


def test_a_topic_created_anew_is_a_loss_and_begins_at_its_earliest() -> None:
    latest = StreamOffsets({CLICKS_0: 50}, {"clicks": "another"})
    going = validate(at(clicks={0: 5}), Extents(latest, {CLICKS_0: 0}))
    assert going.offsets == StreamOffsets({CLICKS_0: 0}, {"clicks": "another"})
    assert going.reset == {CLICKS_0}
    assert len(going.losses) == 1
    assert "deleted and created again" in going.losses[0]


def test_a_log_that_was_cut_back_is_a_loss_and_goes_on_from_its_end() -> None:
    going = validate(at(clicks={0: 9, 1: 1}), Extents(at(clicks={0: 4, 1: 2})))
    assert going.offsets == at(clicks={0: 4, 1: 1})
    assert going.backlogs == {CLICKS_1: Backlog(1, 2)}
    assert going.reset == {CLICKS_0}
    assert len(going.losses) == 1
    assert "clicks-0: the log ends at 4" in going.losses[0]


def test_a_deselected_partition_is_no_data_loss() -> None:
    start = at(clicks={0: 5}, views={0: 2}).only(lambda topic, _: topic == "clicks")
    assert start == at(clicks={0: 5})
    assert not validate(start, Extents(at(clicks={0: 5}))).losses


@given(stream_offsets_made(), stream_offsets_made())
def test_a_stream_that_goes_on_is_where_nothing_jumps_again(
    start: StreamOffsets, latest: StreamOffsets
) -> None:
    earliest = dict.fromkeys(new_partitions(start, latest), 0)
    once = validate(start, Extents(latest, earliest))
    twice = validate(once.offsets, Extents(latest))
    assert twice.offsets == once.offsets
    assert not twice.reset
    assert not twice.losses
    assert once.offsets.offsets.keys() == latest.offsets.keys()


@pytest.mark.parametrize("module", [rate_limit, stream_offsets])
def test_examples_in_docstrings_hold(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed
