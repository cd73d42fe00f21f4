"""`python -m tests.crash.states`: every state a power cut can leave, of a log and of a broker.

The short lives are enumerated whole, and a second power cut during each recovery of a log too.
After a kill at every moment of a log's life what was durable is damaged, and must be refused.
`--lives` more are drawn from seeds, with at most `--limit` states of each of their moments. Every
operation of a short life fails once with EIO and once with ENOSPC. Prints how many different states
were recovered, how many operations failed, and every violation.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import sys
import time
from collections.abc import Callable

from millrace_server.log import LogConfig
from tests.crash import broker_life, broker_states, log_states
from tests.crash.durable_states import Tally
from tests.crash.io_failures import FAULTS, check_broker_failure, check_log
from tests.crash.kill_damage import check_kills

WHOLE_LIMIT = 50_000
"""No moment of the short lives has as many states."""
LifeThatFails = Callable[[int], int | None]
"""Runs a life whose operation of that number fails; None beyond its last operation."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lives", type=int, default=100, help="lives drawn, of a log and a broker")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=500, help="states of one moment of these")
    options = parser.parse_args()
    # Every recovery is told in a line, and there are many.
    logging.disable(logging.CRITICAL)
    seeds = range(options.first_seed, options.first_seed + options.lives)
    short = [_log_check(*of, limit=WHOLE_LIMIT, nested=200) for of in log_states.LIVES.values()]
    drawn = [
        _log_check(log_states.at_random(s), config, limit=options.limit, nested=4)
        for s in seeds
        for config in (log_states.SMALL, log_states.COMPACTED)
    ]
    failed = _check_all("short lives of a log", short) + _check_all("drawn lives of a log", drawn)
    short = [_broker_check(live, limit=WHOLE_LIMIT) for live in broker_life.LIVES.values()]
    drawn = [_broker_check(broker_life.at_random(s), limit=options.limit) for s in seeds]
    failed += _check_all("short lives of a broker", short)
    failed += _check_all("drawn lives of a broker", drawn)
    lives = [_log_failures(*of, code) for of in log_states.LIVES.values() for code in FAULTS]
    failed += _check_failures("a log", lives)
    lives = [_broker_failures(of, code) for of in broker_life.LIVES.values() for code in FAULTS]
    failed += _check_failures("a broker", lives)
    return 1 if failed else 0


def _log_check(
    live: log_states.Live, config: LogConfig, *, limit: int, nested: int
) -> Callable[[], Tally]:
    def check() -> Tally:
        check_kills(live, config, flips=10)
        return log_states.check_life(live, config, limit=limit, nested=nested)

    return check


def _broker_check(live: broker_life.Live, *, limit: int) -> Callable[[], Tally]:
    return lambda: asyncio.run(broker_states.check_life(live, limit=limit))


def _check_all(what: str, checks: list[Callable[[], Tally]]) -> int:
    """Runs checks, prints the sums and every violation; returns how many of these."""
    total, failed, started = Tally(), 0, time.monotonic()
    for number, run in enumerate(checks):
        try:
            tally = run()
        except AssertionError as error:
            failed += 1
            print(f"{what}, number {number}: {error}")
            continue
        total.moments += tally.moments
        total.possible += tally.possible
        total.checked += tally.checked
        total.sampled_moments += tally.sampled_moments
    print(
        f"{len(checks)} {what}: {total.moments} moments, {total.possible} states, "
        f"{total.checked} of them different and recovered, {total.sampled_moments} moments "
        f"sampled, {failed} violations, {time.monotonic() - started:.0f} s",
        flush=True,
    )
    return failed


def _log_failures(live: log_states.Live, config: LogConfig, code: int) -> LifeThatFails:
    return lambda number: check_log(live, config, number=number, code=code)


def _broker_failures(live: broker_life.Live, code: int) -> LifeThatFails:
    return lambda number: asyncio.run(check_broker_failure(live, number=number, code=code))


def _check_failures(of: str, lives: list[LifeThatFails]) -> int:
    """Lets every operation of each life fail once; returns how many of them broke a promise."""
    operations, failed, started = 0, 0, time.monotonic()
    for index, live in enumerate(lives):
        for number in itertools.count():
            try:
                if live(number) is None:
                    break
            except AssertionError as error:
                failed += 1
                print(f"operation {number} of life {index} of {of}: {error}")
            operations += 1
    print(
        f"{operations} failing operations of {of}: {failed} violations, "
        f"{time.monotonic() - started:.0f} s",
        flush=True,
    )
    return failed


if __name__ == "__main__":
    sys.exit(main())
