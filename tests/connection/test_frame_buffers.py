"""Memory for frames is used again, and never while a view of it lives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millrace_wire.frame_buffers import KEPT_BYTES_MAX, KEPT_BYTES_MIN, KEPT_MAX, FrameBuffers

LARGE = 10 * KEPT_BYTES_MIN


def take(buffers: FrameBuffers, size: int) -> memoryview:
    view = buffers.take(size, wanted=size)
    assert view is not None
    return view


def test_a_buffer_is_used_again_once_no_view_of_it_lives() -> None:
    buffers = FrameBuffers()
    view = take(buffers, LARGE)
    first = id(view.obj)
    part = view[10:20]
    del view
    assert id(take(buffers, LARGE).obj) != first, "a view of a part of it lives"
    del part
    again = take(buffers, LARGE - 100)
    assert (id(again.obj), len(again)) == (first, LARGE - 100)


def test_frames_of_about_the_same_size_share_a_buffer() -> None:
    buffers = FrameBuffers()
    take(buffers, 1_200_000)
    assert len(take(buffers, 1_240_000)) == 1_240_000
    assert len(buffers._kept) == 1


@given(st.integers(KEPT_BYTES_MIN + 1, KEPT_BYTES_MAX + 2))
def test_a_kept_buffer_is_a_sixteenth_larger_at_most(size: int) -> None:
    buffers = FrameBuffers()
    assert len(take(buffers, size)) == size
    for kept in buffers._kept:
        assert size <= len(kept) <= min(size + size // 16, KEPT_BYTES_MAX)


def test_a_huge_buffer_is_not_kept() -> None:
    buffers = FrameBuffers()
    take(buffers, KEPT_BYTES_MAX + 1)
    assert buffers._kept == []
    larger = FrameBuffers(2 * KEPT_BYTES_MAX)
    take(larger, KEPT_BYTES_MAX + 1)
    assert len(larger._kept) == 1


def test_bytes_that_are_only_announced_get_a_buffer_that_is_there_and_no_new_one() -> None:
    buffers = FrameBuffers()
    assert buffers.take(LARGE, wanted=LARGE - 1) is None
    take(buffers, LARGE)
    found = buffers.take(LARGE, wanted=1)
    assert found is not None
    assert len(found) == LARGE


def test_a_small_frame_takes_no_place_among_the_kept_buffers() -> None:
    buffers = FrameBuffers()
    assert buffers.take(KEPT_BYTES_MIN, wanted=KEPT_BYTES_MIN) is None
    assert buffers._kept == []


@given(
    st.lists(
        st.tuples(st.integers(KEPT_BYTES_MIN + 1, 4 * KEPT_BYTES_MIN), st.integers(0, 3)),
        max_size=40,
    )
)
def test_a_held_view_is_not_written_over_and_few_buffers_are_kept(
    steps: list[tuple[int, int]],
) -> None:
    buffers = FrameBuffers()
    held: list[tuple[memoryview, bytes]] = []
    for number, (size, dropped) in enumerate(steps):
        view = take(buffers, size)
        content = bytes([number % 256]) * size
        view[:] = content
        held.append((view[:], content))
        del view, held[:dropped]
        assert all(view == content for view, content in held)
        assert len(buffers._kept) <= KEPT_MAX
