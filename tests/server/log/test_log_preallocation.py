"""How much space is reserved ahead of a segment's end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millrace_server.log.preallocation import wanted_bytes

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@given(st.lists(st.integers(1, 4 * MIB), min_size=1, max_size=80), st.integers(0, GIB))
def test_the_reserve_is_a_small_part_of_what_is_written(appends: list[int], start: int) -> None:
    size = allocated = start
    for appended in appends:
        size += appended
        allocated = max(allocated, size)
        wanted = wanted_bytes(size, allocated, limit_bytes=GIB)
        if wanted is not None:
            assert allocated < wanted <= GIB
            allocated = wanted
        assert allocated - size <= max(1.5 * size / 20, 1.5 * MIB)
        if 64 * KIB <= size < GIB:
            assert allocated > size


def test_a_small_segment_has_no_reserve() -> None:
    assert wanted_bytes(64 * KIB - 1, 64 * KIB - 1, limit_bytes=GIB) is None
    assert wanted_bytes(64 * KIB, 64 * KIB, limit_bytes=GIB) == 64 * KIB + MIB
    assert wanted_bytes(GIB, GIB, limit_bytes=GIB) is None


def test_a_segment_is_filled_in_some_hundred_steps() -> None:
    size, allocated, steps = 64 * KIB, 64 * KIB, 0
    while size < GIB:
        wanted = wanted_bytes(size, allocated, limit_bytes=GIB)
        if wanted is not None:
            allocated, steps = wanted, steps + 1
        size += 64 * KIB
    assert steps < 150
