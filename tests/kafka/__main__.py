"""`python -m tests.kafka`: what takes Apache Kafka itself, whose jars are fetched once.

    python -m tests.kafka --java           Kafka's tools, Kafka Streams and Spark's source
    python -m tests.kafka --beside 5000    generated requests of each api, to Kafka and to millrace

Java 17 and access to Maven Central are needed; see `benchmarks.apache_kafka`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from benchmarks.apache_kafka import VERSION, NoKafka, apache_kafka
from millrace_server.testing import BrokerThread
from tests.kafka.beside import compare, summary
from tests.kafka.java_tools import run
from tests.kafka.known_differences import Difference


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.kafka",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--beside", type=int, default=100, metavar="COUNT", help="requests of each api"
    )
    parser.add_argument("--java", action="store_true", help="Kafka's own clients and tools")
    parser.add_argument("--only", default="", help="apis or checks whose names contain this")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    try:
        if options.java:
            with BrokerThread(group_initial_rebalance_delay_ms=0) as broker:
                return int(bool(run(broker.servers, options.only)))
        return _beside(options.beside, options.seed, options.only)
    except NoKafka as error:
        print(f"Apache Kafka {VERSION}: {error}", file=sys.stderr)
        return 1


def _beside(count: int, seed: int, only: str) -> int:
    with (
        apache_kafka(auto_create_topics_enable="false") as (address, _),
        BrokerThread(
            group_initial_rebalance_delay_ms=0,
            group_min_session_timeout_ms=6_000,
            node_id=1,
            offsets_topic_partitions=50,
        ) as broker,
    ):
        theirs, ours = (int(each.rpartition(":")[2]) for each in (address, broker.servers))
        return asyncio.run(_compared(theirs, ours, count, seed, only))


async def _compared(theirs: int, ours: int, count: int, seed: int, only: str) -> int:
    sent = 0
    differences: list[Difference] = []
    async for each in compare(theirs, ours, count=count, seed=seed, only=only):
        sent += each.sent
        differences += each.differences
        unknown = [each for each in each.differences if each.known_as() is None]
        print(
            f"{each.api.name}: {each.sent:,} requests in {each.seconds:.0f} s, "
            f"{len(each.differences):,} differences, {len(unknown):,} of them of no known kind",
            flush=True,
        )
    for line in summary(differences):
        print(line)
    others = sum(each.known_as() is None for each in differences)
    print(
        f"{sent:,} requests, {len(differences):,} differences, {others:,} of them of no known kind",
        flush=True,
    )
    return int(bool(others))


if __name__ == "__main__":
    sys.exit(main())
