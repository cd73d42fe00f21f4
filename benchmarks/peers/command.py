"""`python -m benchmarks --peers [--quick] [--workload NAME] [--peer NAME] [--out DIRECTORY]`.

Measures millrace beside Apache Kafka, Redis Streams and NATS JetStream. A peer that cannot be had
is skipped with a line. What has run is written after each workload.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.machine import machine_facts
from benchmarks.peers.arena import Arena
from benchmarks.peers.contestant import Contestant, Unavailable
from benchmarks.peers.kafka import ApacheKafka
from benchmarks.peers.nats import Nats
from benchmarks.peers.ours import Millrace
from benchmarks.peers.page import JSON_NAME, markdown, write
from benchmarks.peers.redis import Redis
from benchmarks.peers.rows import Different, Run, Skipped
from benchmarks.peers.scale import SCALES, Matrix, Scale
from benchmarks.peers.workloads import WORKLOADS
from benchmarks.processes import raise_open_files_limit
from benchmarks.session import TINY, Session, open_session

PEERS: dict[str, type[Contestant]] = {
    "millrace": Millrace,
    "kafka": ApacheKafka,
    "redis": Redis,
    "nats": Nats,
}
PACKAGES = (
    "millrace-native",
    "confluent-kafka",
    "aiokafka",
    "redis",
    "hiredis",
    "nats-py",
    "pyspark",
    "pyarrow",
)


def parser() -> argparse.ArgumentParser:
    """The options; those of the matrix replace its default values."""
    made = argparse.ArgumentParser(prog="python -m benchmarks --peers", description=__doc__)
    made.add_argument("--quick", action="store_const", const="quick", dest="scale")
    made.add_argument("--scale", choices=SCALES, help="how much to do: full")
    made.add_argument("--rounds", type=_positive, help="of every case, instead of the scale's")
    made.add_argument(
        "--workload", action="append", choices=WORKLOADS, help="one to run; may be repeated"
    )
    made.add_argument(
        "--peer", action="append", choices=PEERS, help="a server to run; may be repeated"
    )
    made.add_argument("--all-cases", action="store_true", help="the whole matrix, all ways; hours")
    made.add_argument("--sizes", type=_positive, nargs="+", help="of records, in bytes")
    made.add_argument("--partitions", type=_positive, nargs="+")
    made.add_argument("--clients", type=_positive, nargs="+")
    made.add_argument("--compressions", nargs="+", choices=("none", "lz4", "zstd"))
    made.add_argument("--acks", nargs="+", choices=("1", "all"))
    made.add_argument("--out", type=Path, help="where to write the page, its plots and its figures")
    made.add_argument(
        "--add", action="store_true", help="keep the workloads in OUT that do not run this time"
    )
    made.add_argument("--data", type=Path, help="a directory on the disk to measure on")
    made.add_argument("--render", type=Path, help="figures to write the page of, without a run")
    made.set_defaults(scale="full")
    return made


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {value}")
    return value


def main(arguments: Sequence[str]) -> int:
    """Runs what the arguments ask for; returns 1 when a workload or a way broke down."""
    options = parser().parse_args(arguments)
    if options.render is not None:
        try:
            run = Run.of_json(options.render.read_text())
        except (OSError, ValueError, TypeError) as error:
            print(f"--render: {error}", file=sys.stderr)
            return 2
        write(run, options.out or options.render.parent)
        return 0
    try:
        kept = _kept(options)
    except (OSError, ValueError, TypeError) as error:
        print(f"--add: {error}", file=sys.stderr)
        return 2
    scale = _scale(options)
    dimensions = {field.name: getattr(options, field.name) for field in dataclasses.fields(Matrix)}
    matrix = Matrix(**{name: value for name, value in dimensions.items() if value})
    raise_open_files_limit()
    # The size of a round is of this package's scale; the session's is not used.
    with open_session(TINY, options.data) as session:
        try:
            run = _measure(session, scale, matrix, options, kept)
        except Different as error:
            print(f"--add: {error}", file=sys.stderr)
            return 2
    print(markdown(run))
    return int(run.failed)


def _kept(options: argparse.Namespace) -> Run | None:
    """The figures that stay. Raises `ValueError` if they cannot be read."""
    if not options.add:
        return None
    if options.out is None:
        raise ValueError("it needs --out, the directory with the figures to keep")
    return Run.of_json((options.out / JSON_NAME).read_text())


def _scale(options: argparse.Namespace) -> Scale:
    scale = SCALES[options.scale]
    if options.rounds is None:
        return scale
    return dataclasses.replace(
        scale,
        rounds=options.rounds,
        side_rounds=options.rounds if scale.side_rounds else 0,
        starts=options.rounds,
        spark_rounds=options.rounds,
    )


def _measure(
    session: Session,
    scale: Scale,
    matrix: Matrix,
    options: argparse.Namespace,
    kept: Run | None,
) -> Run:
    workloads = options.workload or list(WORKLOADS)
    run = Run(
        {**machine_facts(session.directory), **_versions()},
        {"scale": options.scale, "rounds": str(scale.rounds), "workloads": ", ".join(workloads)},
    )
    with ExitStack() as stack:
        contestants = []
        for name in options.peer or PEERS:
            contestant = PEERS[name](session, session.directory / name)
            try:
                run.peers[contestant.name] = _described(contestant)
                session.say(f"starting {contestant.name}")
                contestant.start()
            except Unavailable as error:
                run.peers.pop(contestant.name, None)
                run.skipped.append(Skipped(contestant.name, str(error)))
                session.say(f"skipped: {contestant.name}: {error}")
                continue
            stack.callback(contestant.stop)
            contestants.append(contestant)
        if kept is not None:
            run.check_like(kept)
        arena = Arena(session, scale, matrix, contestants, all_cases=options.all_cases)
        for name in workloads:
            try:
                run.rows += WORKLOADS[name][1](arena)
            except Exception as error:
                arena.skip(name, f"{type(error).__name__}: {error}", failed=True)
            run.skipped += arena.skipped
            arena.skipped.clear()
            if options.out is not None:
                write(run if kept is None else run.beside(kept, workloads), options.out)
    return run if kept is None else run.beside(kept, workloads)


def _described(contestant: Contestant) -> str:
    durabilities = "; ".join(f"{short}: {what}" for short, what in contestant.durabilities.items())
    return f"{contestant.version()}. {durabilities}"


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found
