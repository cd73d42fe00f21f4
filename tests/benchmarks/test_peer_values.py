"""What contestants send: the same bytes everywhere, and a checksum that is known beforehand."""

from __future__ import annotations

import zlib
from itertools import cycle, islice

import pytest

from benchmarks.peers.clients.java import consumed
from benchmarks.peers.scale import FULL, KIB, Case, Matrix
from benchmarks.peers.values import checksum, cycled, expected_checksum, pool


@pytest.mark.parametrize("size", [1, 100, 1_024, 102_400])
def test_all_values_of_a_pool_have_the_size_asked_for(size: int) -> None:
    assert {len(value) for value in pool(size)} == {size}


def test_values_can_be_compressed_to_about_a_half_and_not_to_nothing() -> None:
    joined = b"".join(pool(100))
    assert 0.3 < len(zlib.compress(joined)) / len(joined) < 0.7


@pytest.mark.parametrize("count", [0, 1, 999, 1_000, 2_345])
def test_the_expected_checksum_is_that_of_the_cycle(count: int) -> None:
    sent = list(islice(cycle(pool(100)), count))
    assert expected_checksum(100, count) == checksum(sent)


def test_the_checksum_changes_with_a_byte_and_not_with_the_order() -> None:
    values = list(pool(100))
    assert checksum(reversed(values)) == checksum(values)
    damaged = [b"!" + values[0][1:], *values[1:]]
    assert checksum(damaged) != checksum(values)


@pytest.mark.parametrize(("first", "count"), [(0, 3), (2, 3), (4, 5), (7, 13), (1, 0)])
def test_a_piece_of_the_cycle_begins_where_the_one_before_ended(first: int, count: int) -> None:
    values = [b"a", b"b", b"c", b"d", b"e"]
    assert list(cycled(values, first, count)) == list(islice(cycle(values), first, first + count))


def test_the_sides_of_the_matrix_differ_from_a_base_case_in_one_dimension() -> None:
    matrix = Matrix()
    assert [case.title for case in matrix.base()] == [
        "100 B, 1 partition, 1 client, acks=1",
        "1 KiB, 1 partition, 1 client, acks=1",
    ]
    sides = matrix.sides()
    assert len(set(sides)) == len(sides)
    assert not set(sides) & set(matrix.base())
    assert set(sides) <= set(matrix.whole())
    assert Case(KIB, compression="zstd") in sides
    assert Case(100, partitions=8, clients=8) in sides


def test_a_round_is_bounded_by_records_and_by_bytes() -> None:
    assert FULL.records(100) == FULL.round_records
    assert FULL.records(100 * KIB) * 100 * KIB <= FULL.round_bytes
    assert FULL.records(100, share=5) == FULL.round_records // 5
    assert FULL.records(100, is_base=True) == 4 * FULL.round_records
    assert FULL.records(100, share=5, is_base=True) == FULL.round_records // 5


def test_the_consumer_tool_of_kafka_is_read_by_its_last_line() -> None:
    printed = (
        "2026-11-26 19:00:00:000, 2026-11-26 19:00:03:000, 19.0735, 6.3578, 200000, 66666.6, "
        "2800, 200, 95.3675, 1000000.0\n"
    )
    taken = consumed(printed)
    assert (taken.records, taken.own_s) == (200_000, 0.2)
    assert taken.value_bytes == pytest.approx(20_000_000, rel=1e-5)
