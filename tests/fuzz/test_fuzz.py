"""No bytes make a decoder raise anything but its typed errors, or hold memory without bound.

A few hundred inputs each, always the same; `python -m tests.fuzz` runs as many as you like.
"""

from __future__ import annotations

import pytest

from tests.fuzz.driver import GROWTH_BYTES_MAX, run
from tests.fuzz.mutation import mutations
from tests.fuzz.targets import TARGETS, Target
from tests.fuzz.typed_lines import typed_lines

INPUTS = 1_000


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_bytes_are_decoded_or_refused_with_a_typed_error(target: Target) -> None:
    _find_nothing(target)


def test_a_typed_line_is_answered_whatever_it_says() -> None:
    with typed_lines() as target:
        _find_nothing(target)


def _find_nothing(target: Target) -> None:
    outcome = run(target, mutations(target.seeds, count=INPUTS, seed=1), crashes_max=1)
    for data, error in outcome.crashes:
        raise AssertionError(f"{target.name}: {data.hex()}") from error
    assert outcome.inputs == INPUTS + len(target.seeds)
    assert outcome.growth_bytes < GROWTH_BYTES_MAX
