"""The one command: `python -m benchmarks [--quick] [--only GROUP] [--out DIRECTORY]`.

With `--against DIRECTORY` it measures another checkout and this one in turns. With `--peers` it
measures millrace beside Apache Kafka, Redis Streams and NATS JetStream; see `--peers --help`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import (
    appends,
    clients,
    cluster_group,
    fetches,
    footprint,
    groups,
    growth,
    idle_connections,
    kafka_group,
    latency,
    restart,
    small_requests,
    spark_group,
    sql_queries,
    tls_group,
)
from benchmarks.checkout import ROOT, checkout_at
from benchmarks.machine import machine_facts, revision
from benchmarks.pairs import AFTER, BEFORE, run_pairs
from benchmarks.peers.command import main as compare_peers
from benchmarks.processes import raise_open_files_limit
from benchmarks.results import Results, Row, Skipped, to_json, to_markdown
from benchmarks.session import SCALES, Scale, Session, open_session

GROUPS: dict[str, tuple[str, Callable[[Session], Iterator[Row]]]] = {
    fetches.GROUP: ("Broker: fetch", fetches.run),
    appends.GROUP: ("Broker: produce", appends.run),
    small_requests.GROUP: ("Broker: small requests", small_requests.run),
    latency.GROUP: ("Latency from producer to consumer", latency.run),
    clients.GROUP: ("Clients beside confluent-kafka and aiokafka", clients.run),
    kafka_group.GROUP: ("A Kafka client, beside Apache Kafka", kafka_group.run),
    tls_group.GROUP: ("A Kafka client over TLS, beside Apache Kafka", tls_group.run),
    footprint.GROUP: ("Broker: start, memory, idle CPU", footprint.run),
    idle_connections.GROUP: ("Broker: idle connections", idle_connections.run),
    groups.GROUP: ("Broker: consumer groups", groups.run),
    restart.GROUP: ("Broker: restart after kill -9", restart.run),
    cluster_group.GROUP: ("A cluster of three brokers", cluster_group.run),
    spark_group.GROUP: ("Spark connector", spark_group.run),
    growth.GROUP: ("Metadata of a large cluster", growth.run),
    sql_queries.GROUP: ("SQL over a topic", sql_queries.run),
}
HEADINGS = {group: heading for group, (heading, _) in GROUPS.items()}
JSON_NAME = "results.json"
MARKDOWN_NAME = "RESULTS.md"


def run_groups(session: Session, chosen: list[str], results: Results) -> None:
    """Runs the groups in order and collects their rows; one that breaks does not stop the rest."""
    for group in chosen:
        try:
            for row in GROUPS[group][1](session):
                results.rows.append(row)
        except Exception as error:
            results.rows.append(Skipped(group, f"{type(error).__name__}: {error}", failed=True))
            session.say(f"{group} failed: {type(error).__name__}: {error}")
            if session.log.exists():
                session.say(session.log.read_text())


def compare_checkouts(options: argparse.Namespace, scale: Scale, chosen: list[str]) -> Results:
    """Runs the groups in pairs, with the other checkout and with this one."""
    checkouts = {BEFORE: checkout_at(options.against), AFTER: checkout_at(ROOT)}
    results = Results(
        {**machine_facts(ROOT), "before": revision(options.against), "after": revision(ROOT)},
        {"pairs": options.pairs, "groups": " ".join(chosen)},
    )
    for group in chosen:
        results.rows += run_pairs(
            group,
            GROUPS[group][1],
            checkouts,
            scale=scale,
            parent=options.data,
            count=options.pairs,
        )
    return results


def main(arguments: list[str] | None = None) -> int:
    """Runs what the arguments ask for; returns 1 when a group broke down."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if "--peers" in arguments:  # It has options of its own.
        return compare_peers([argument for argument in arguments if argument != "--peers"])
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_const", const="quick", dest="scale")
    parser.add_argument("--scale", choices=SCALES, help="how much to do; --quick is --scale quick")
    parser.add_argument("--only", action="append", choices=GROUPS, help="a group; may be repeated")
    parser.add_argument("--out", type=Path, help=f"where to write {JSON_NAME} and {MARKDOWN_NAME}")
    parser.add_argument("--data", type=Path, help="a directory on the disk to measure on")
    parser.add_argument("--against", type=Path, help="another checkout, to compare this one with")
    parser.add_argument("--pairs", type=int, default=5, help="how often both checkouts run")
    options = parser.parse_args(arguments)
    scale_name = options.scale or ("pair" if options.against else "full")
    chosen = [group for group in GROUPS if not options.only or group in options.only]
    out = options.out
    if out is None and scale_name == "full" and not options.only:
        out = Path(__file__).parent
    raise_open_files_limit()
    if options.against is not None:
        results = compare_checkouts(options, SCALES[scale_name], chosen)
    else:
        with open_session(SCALES[scale_name], options.data) as session:
            results = Results(
                machine_facts(session.directory),
                {"scale": scale_name, "rounds": session.scale.rounds, "groups": " ".join(chosen)},
            )
            run_groups(session, chosen, results)
    markdown = to_markdown(results, HEADINGS)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / JSON_NAME).write_text(to_json(results) + "\n")
        (out / MARKDOWN_NAME).write_text(markdown)
    print(markdown)
    return int(results.failed)


if __name__ == "__main__":
    sys.exit(main())
