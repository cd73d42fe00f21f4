"""`python -m tests.chaos --minutes 10 --seed 1`: brokers are killed, paused and cut off.

The brokers run on hosts of their own, which are network namespaces of this machine. Ends with 0 if
no record is lost, doubled or out of order, and acks come again after every fault.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tests.chaos.campaign import Campaign, ChaosOutcome
from tests.chaos.host_network import inside_namespace, refusal


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--data", type=Path, help="where brokers leave their data and logs")
    options = parser.parse_args()
    inside_namespace("tests.chaos", sys.argv[1:])
    data = options.data or Path(tempfile.mkdtemp(prefix="millrace-chaos-"))
    data.mkdir(parents=True, exist_ok=True)
    campaign = Campaign(
        data,
        brokers=options.brokers,
        seconds=60 * options.minutes,
        seed=options.seed,
        tell=_stamped,
    )
    outcome = asyncio.run(campaign.run())
    print(*_lines(outcome), sep="\n")
    if not outcome.report.is_valid:
        print(f"the brokers' data and logs are in {data}")
        return 1
    if options.data is None:
        shutil.rmtree(data)
    return 0


def _stamped(line: str) -> None:
    print(time.strftime("%H:%M:%S"), line, flush=True)


def _lines(outcome: ChaosOutcome) -> list[str]:
    recoveries = [each.recovery_s for each in outcome.faults]
    return [
        f"{len(outcome.faults)} faults, {outcome.sent} records, {outcome.polled} read meanwhile: "
        f"{outcome.report}",
        f"acks everywhere after a fault: median {median(recoveries):.1f} s, "
        f"longest {max(recoveries):.1f} s",
    ]


if __name__ == "__main__":
    if reason := refusal():
        sys.exit(f"python -m tests.chaos: {reason}")
    sys.exit(main())
