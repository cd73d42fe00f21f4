"""The collector of cycles: how it is kept from having much to do at once.

Owns how many objects it looks through in one go. An interpreter has one collector, so this is for a
process that is a broker and nothing else.
"""

from __future__ import annotations

import asyncio
import gc

THRESHOLDS = (400, 2, 12_500)
"""Objects made and not freed before the youngest are looked through; every 3rd time those that
survived that once, some 1,600, in less than a millisecond; after ten million all."""
YOUNG_MAX = (400, 1_200)
"""Of the youngest, and of those that survived once: where there are more, it is time."""
SWEEP_S, SWEEP_S_MAX = 0.02, 0.32
"""Between two looks at how many there are, and where there were few, which doubles it each time: to
be awakened costs an idle broker a quarter of a millisecond. What a busy one makes meanwhile is
looked through in one, or in ten where it was idle before."""


def collect_seldom() -> None:
    """Lets the collector look through old objects less often.

    It looks through all of them at once: thousands of long polls are half a million objects, which
    took it 250 ms each time their number had grown by a quarter. Cycles that die young are still
    found at once, and nothing that a request leaves behind is a cycle.
    """
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


async def sweep_young() -> None:
    """Looks through young objects when there are many, for ever.

    The collector does not count them: it takes objects that were freed, of any age, from those that
    were made. Where new ones take the place of old ones, as groups do when there are as many as may
    be, it hardly ever counts to its threshold, and then finds tens of thousands: 15 to 44 ms.
    """
    pause_s = SWEEP_S
    while True:
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, SWEEP_S_MAX)
        for generation, most in enumerate(YOUNG_MAX):
            if len(gc.get_objects(generation)) > most:
                gc.collect(generation)
                pause_s = SWEEP_S
