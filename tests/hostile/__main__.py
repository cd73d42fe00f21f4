"""`python -m tests.hostile [NAME...]`: every hostile input at full size, and what others felt.

Runs each attack (or those whose names contain one of the words given) on a broker of its own, with
a well-behaved client in a third process that appends and reads a record every 10 ms. Prints how
the attack was answered, the client's p99 against its p99 on the idle broker, and the broker's peak
of memory above idle. Ends with 1 when an attack was not answered as it should be.

All three share the machine: with few processors part of the ratio is the attacker's own work.
Ten thousand connections need as many open files: `ulimit -n 20000`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.hostile import against_batches, against_bodies, against_crowds, against_frames
from tests.hostile.attack import ATTACKS, Attack
from tests.hostile.target import MEMORY_BYTES_MAX, SHORT_LIMITS, Target, broker_process

BASELINE_S = 2
ATTACK_TIMEOUT_S = 300
assert all((against_batches, against_bodies, against_crowds, against_frames))


class Bystander:
    """The well-behaved client's process, from `start` to its figures."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, port: int) -> Bystander:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.hostile.bystander",
            str(port),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        return cls(process)

    async def finish(self) -> dict[str, Any]:
        """Its figures; raises `RuntimeError` when it was not served."""
        out, _ = await self._process.communicate(b"")
        if self._process.returncode != 0:
            raise RuntimeError("the well-behaved client failed")
        figures: dict[str, Any] = json.loads(out)
        return figures


async def measure(target: Target, attack: Attack) -> tuple[str, bool]:
    """One row of the table, and whether the attack was answered as it should be."""
    idle = await Bystander.start(target.port)
    await asyncio.sleep(BASELINE_S)
    before = await idle.finish()
    target.forget_peak()
    logged_before = target.logged_bytes
    beside = await Bystander.start(target.port)
    await asyncio.sleep(0.5)
    passed = True
    try:
        async with asyncio.timeout(ATTACK_TIMEOUT_S):
            outcome = await attack.run(target)
    except Exception as error:
        outcome, passed = f"FAILED: {error!r}"[:60], False
    await asyncio.sleep(0.5)
    during = await beside.finish()
    passed = passed and target.is_alive and target.peak_bytes < MEMORY_BYTES_MAX
    row = (
        f"{attack.name:<55} {outcome[:48]:<48} {before['p99_ms']:>7.1f} {during['p99_ms']:>8.1f} "
        f"{during['p99_ms'] / before['p99_ms']:>6.1f} {during['max_ms']:>8.1f} "
        f"{target.peak_bytes >> 20:>6} {(target.logged_bytes - logged_before) >> 10:>6}"
    )
    return row, passed


def main(words: list[str]) -> int:
    print(
        f"{'input':<55} {'outcome':<48} {'p99 ms':>7} {'attacked':>8} {'ratio':>6} {'max ms':>8} "
        f"{'MiB':>6} {'log K':>6}"
    )
    failures = 0
    for attack in ATTACKS:
        if words and not any(word in attack.name for word in words):
            continue
        with tempfile.TemporaryDirectory() as directory:
            limits = SHORT_LIMITS if attack.needs_short_limits else None
            with broker_process(Path(directory), environment=limits, full=True) as target:
                row, passed = asyncio.run(measure(target, attack))
        failures += not passed
        print(f"{row}{'' if passed else '  FAILED'}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
