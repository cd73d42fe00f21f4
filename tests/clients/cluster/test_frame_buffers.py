"""Room for frames is used again, and never while somebody looks into it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millrace._cluster.frame_buffers import KEPT_BYTES_MAX, KEPT_MAX, FrameBuffers


def test_a_buffer_is_used_again_once_no_view_of_it_lives() -> None:
    buffers = FrameBuffers()
    view = buffers.take(1000)
    first = id(view.obj)
    part = view[10:20]
    del view
    assert id(buffers.take(1000).obj) != first, "a part of it is still looked at"
    del part
    again = buffers.take(900)
    assert (id(again.obj), len(again)) == (first, 900)


def test_answers_of_about_the_same_size_share_a_buffer() -> None:
    buffers = FrameBuffers()
    buffers.take(1_200_000)
    assert len(buffers.take(1_240_000)) == 1_240_000
    assert len(buffers._kept) == 1


@given(st.integers(1, KEPT_BYTES_MAX + 2))
def test_a_kept_buffer_is_a_sixteenth_larger_at_most(size: int) -> None:
    buffers = FrameBuffers()
    assert len(buffers.take(size)) == size
    for kept in buffers._kept:
        assert size <= len(kept) <= min(size + size // 16, KEPT_BYTES_MAX)


def test_a_huge_buffer_is_not_kept() -> None:
    buffers = FrameBuffers()
    buffers.take(KEPT_BYTES_MAX + 1)
    assert buffers._kept == []
    larger = FrameBuffers(2 * KEPT_BYTES_MAX)
    larger.take(KEPT_BYTES_MAX + 1)
    assert len(larger._kept) == 1


@given(st.lists(st.tuples(st.integers(1, 4000), st.integers(0, 3)), max_size=40))
def test_what_is_held_is_not_written_over_and_few_are_kept(steps: list[tuple[int, int]]) -> None:
    buffers = FrameBuffers()
    held: list[tuple[memoryview, bytes]] = []
    for number, (size, dropped) in enumerate(steps):
        view = buffers.take(size)
        content = bytes([number % 256]) * size
        view[:] = content
        held.append((view[:], content))
        del view, held[:dropped]
        assert all(view == content for view, content in held)
        assert len(buffers._kept) <= KEPT_MAX
