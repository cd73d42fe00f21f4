"""No bytes make a decoder raise anything but its typed errors, or hold memory without bound.

A thousand inputs for each decoder, always the same ones in the same order; `python -m tests.fuzz`
runs a million.
"""

from __future__ import annotations

import pytest

from tests.fuzz.catalogue import NAMES, opened
from tests.fuzz.driver import GROWTH_BYTES_MAX, run
from tests.fuzz.mutation import mutations
from tests.fuzz.once_found import ONCE_FOUND

INPUTS = 1_000
"""Inputs of each decoder, beside its seeds."""


@pytest.mark.parametrize("name", NAMES)
def test_bytes_are_decoded_or_refused_with_a_typed_error(name: str) -> None:
    with opened(name) as target:
        outcome = run(target, mutations(target.seeds, count=INPUTS, seed=1))
    for data, error in outcome.crashes:
        raise AssertionError(f"{name}: {data.hex()}") from error
    assert outcome.inputs == len(target.seeds) + INPUTS
    assert outcome.growth_bytes < GROWTH_BYTES_MAX


@pytest.mark.parametrize(("name", "data"), ONCE_FOUND, ids=lambda value: str(value)[:40])
def test_input_that_once_crashed_a_decoder_is_a_typed_error(name: str, data: bytes) -> None:
    with opened(name) as target:
        target.run(data)
