"""`python -m tests.pipes --records 1000000`: nothing is lost between produce and a slow reader.

Prints what happened to the members of the group; ends with 1 if the lines that were read are not
those that were sent, or if a member left another lag than what it had not written.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from tempfile import TemporaryDirectory

from tests.cli.conftest import serving
from tests.pipes.slow_reader import run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--actions", type=int, default=40, help="stalls, stops and ends")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    # Members inherit what is ignored: SIGHUP under nohup, SIGINT in the background of a script.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    environment = {"MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
    started = time.monotonic()
    with (
        TemporaryDirectory() as data,
        serving("--data", data, "--log-level", "error", environment=environment) as broker,
    ):
        found = run(
            broker.servers, records=options.records, actions=options.actions, seed=options.seed
        )
    print(
        f"{found.lines:,} lines, {found.size:,} bytes in {time.monotonic() - started:.0f} s; "
        f"{found.lives} members, {found.stalls} stalls, {found.stops} stops; lag {found.lag}; "
        f"md5 {found.sent_md5} sent, {found.read_md5} read"
    )
    for fault in found.faults:
        print(fault)
    is_same = found.sent_md5 == found.read_md5
    return 0 if is_same and not found.faults and found.lag == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
