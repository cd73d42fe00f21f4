"""Invariants of every state of a broker's data directory after a power cut.

Every start succeeds with all partitions online; what was acked is there, in order, and what was
not sent is not; deleted topics stay deleted, unfinished ones leave nothing behind; the broker
goes on.
"""

from __future__ import annotations

import random

from tests.crash.broker_life import BrokerLife, BrokerPromise, Live, check_broker
from tests.crash.durable_states import Moment, MomentDisk, Tally, states


async def moments_of(live: Live) -> list[Moment[BrokerPromise]]:
    """Every moment of a life at which the power may go."""
    disk = MomentDisk()
    life = BrokerLife(disk)
    disk.facts = life.promise
    await live(life)
    disk.facts = None
    last = disk.moment(life.promise())
    await life.stop()
    return [*disk.moments, last]  # type: ignore[list-item]


async def check_life(live: Live, *, limit: int) -> Tally:
    """Checks the states after every moment of a life, at most `limit` of each moment."""
    tally = Tally()
    rng = random.Random(1)
    for moment in await moments_of(live):
        for disk in states(moment, tally, limit=limit, rng=rng):
            found = {path: data and len(data) for path, data in disk.contents().items()}
            try:
                await check_broker(disk, moment.facts)
            except Exception as error:
                raise AssertionError(
                    f"before operation {moment.journal_size}: {error!r}; "
                    f"promised {moment.facts}; found {found}"
                ) from error
    return tally
