"""Hostile input gets a typed error or ends its connection, and other clients are not affected.

One broker process takes every attack after another; a well-behaved client works beside them.
`python -m tests.hostile` runs the same at full size and measures what the others feel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.hang_timeout import HANG_TIMEOUT_S
from tests.hostile.attack import Attack
from tests.hostile.bystander import work
from tests.hostile.catalogue import ATTACKS, CATALOGUE
from tests.hostile.target import MEMORY_BYTES_MAX, SHORT_LIMITS, Target, broker_process

LOGGED_BYTES_MAX = 64 << 10


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with broker_process(tmp_path_factory.mktemp("patient")) as target:
        yield target


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    directory = tmp_path_factory.mktemp("impatient")
    with broker_process(directory, environment=SHORT_LIMITS) as target:
        yield target


@pytest.fixture
def target(request: pytest.FixtureRequest, attack: Attack) -> Target:
    """The broker with the limits that the attack needs."""
    name = "impatient" if attack.needs_short_limits else "patient"
    chosen: Target = request.getfixturevalue(name)
    return chosen


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
async def test_a_hostile_input_is_answered_or_closed_and_others_do_not_notice(
    target: Target, attack: Attack
) -> None:
    target.forget_peak()
    logged_before = target.logged_bytes
    rounds_ms: list[float] = []
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        beside = group.create_task(work(target.port, stop, rounds_ms))
        async with asyncio.timeout(HANG_TIMEOUT_S):
            # Attacks count the broker's descriptors: the bystander's is there before.
            while not rounds_ms:  # noqa: ASYNC110 - its rounds are not announced
                await asyncio.sleep(0.01)
            assert await attack.run(target)
        rounds_before_the_end = len(rounds_ms)
        stop.set()
        async with asyncio.timeout(HANG_TIMEOUT_S):
            await beside
    assert len(rounds_ms) >= max(1, rounds_before_the_end)
    assert target.is_alive
    assert target.peak_bytes < MEMORY_BYTES_MAX
    assert target.logged_bytes - logged_before < LOGGED_BYTES_MAX


def test_everything_that_is_known_to_be_tried_has_its_attack() -> None:
    names = [attack.name for attack in ATTACKS]
    assert len(set(names)) == len(names)
    assert {name for named in CATALOGUE.values() for name in named} <= set(names)
    assert len(CATALOGUE) >= 30
