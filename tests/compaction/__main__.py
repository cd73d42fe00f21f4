"""`python -m tests.compaction --updates 1000000 --keys 1000`: the size of a topic after compaction.

Prints the sizes, how long the pass took at the pace that is set, and what a producer of another
topic felt of it; ends with 1 if a full read does not give the same map before and after.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from millrace_server.config import BrokerConfig
from millrace_server.testing import Broker
from tests.compaction.shrinking import Shrinking, shrink


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--segment-bytes", type=int, default=1 << 20)
    parser.add_argument(
        "--bytes-per-second", type=int, default=BrokerConfig().compaction_bytes_per_second
    )
    parser.add_argument("--data", type=Path, help="a directory on the disk to measure on")
    options = parser.parse_args()
    with TemporaryDirectory(dir=options.data) as directory:
        found = asyncio.run(_run(options, Path(directory)))
    print(
        f"{found.updates:,} updates on {options.keys:,} keys: {found.bytes_before:,} bytes, "
        f"{found.bytes_after:,} after a pass of {found.pass_s:.1f} s; {found.records_after:,} "
        f"records are left; a full read gives {'the same map' if found.is_same else 'ANOTHER MAP'}"
    )
    for name, sorted_ms in (("quiet", found.quiet_ms), ("beside the pass", found.beside_ms)):
        print(
            f"produce, acked, {name}: p50 {sorted_ms[len(sorted_ms) // 2]:.2f} ms, "
            f"p99 {sorted_ms[len(sorted_ms) * 99 // 100]:.2f} ms, of {len(sorted_ms):,}"
        )
    return 0 if found.is_same else 1


async def _run(options: argparse.Namespace, directory: Path) -> Shrinking:
    async with Broker(
        data=directory, compaction_bytes_per_second=options.bytes_per_second
    ) as broker:
        return await shrink(
            broker,
            updates=options.updates,
            keys=options.keys,
            segment_bytes=options.segment_bytes,
            is_measured=True,
        )


if __name__ == "__main__":
    sys.exit(main())
