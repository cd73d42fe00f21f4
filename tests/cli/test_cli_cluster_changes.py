"""Commands that move replicas and leaders of a cluster: three broker processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from millrace_cli.exits import Exit
from tests.cli.running_cluster import RunningCluster, started


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Three brokers for all tests of this file."""
    directory = tmp_path_factory.mktemp("cluster") / "new"
    with started(directory, "--brokers", "3", "--port", "0") as running:
        yield running


def create(cluster: RunningCluster, name: str, *, partitions: int, replicas: int) -> str:
    flags = ["--partitions", str(partitions), "--replication-factor", str(replicas)]
    created = cluster.millrace("topic", "create", name, *flags)
    assert created.exit_code == 0, created.output
    return name


def described(cluster: RunningCluster, name: str) -> list[dict[str, Any]]:
    shown = json.loads(cluster.millrace("topic", "describe", name, "--json").stdout)
    partitions: list[dict[str, Any]] = shown["partitions"]
    return partitions


def test_a_reassignment_moves_the_records_and_shows_where_they_are(
    cluster: RunningCluster,
) -> None:
    millrace, topic = cluster.millrace, create(cluster, "moved", partitions=3, replicas=1)
    sent = millrace.process("produce", topic, stdin=b"".join(b"%d\n" % n for n in range(300)))
    assert sent.returncode == 0, sent.stderr
    done = millrace("topic", "reassign", topic, "--replicas", "3,1")
    assert done.exit_code == 0, done.output
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    # Each partition begins with the next broker, so that both lead.
    assert rows == [
        [topic, str(number), replicas, "-", "-", "-"]
        for number, replicas in enumerate(("3,1", "1,3", "3,1"))
    ]
    assert [each["replicas"] for each in described(cluster, topic)] == [[3, 1], [1, 3], [3, 1]]
    assert len(millrace("consume", topic).stdout.splitlines()) == 300
    one = millrace("topic", "reassign", topic, "-r", "2", "-p", "1", "--json")
    (row,) = json.loads(one.stdout)
    assert (row["partition"], row["replicas"], row["error"]) == (1, [2], None)
    assert [each["replicas"] for each in described(cluster, topic)] == [[3, 1], [2], [3, 1]]
    assert len(millrace("consume", topic).stdout.splitlines()) == 300


def test_what_is_not_being_reassigned_is_not_listed_and_not_cancelled(
    cluster: RunningCluster,
) -> None:
    millrace, topic = cluster.millrace, create(cluster, "settled", partitions=2, replicas=2)
    listed = millrace("topic", "reassign", topic, "--list")
    assert (listed.exit_code, listed.output) == (0, "")
    cancelled = millrace("topic", "reassign", topic, "--cancel")
    assert cancelled.exit_code == Exit.REFUSED
    assert "no partition of settled is being reassigned" in cancelled.stderr


@pytest.mark.parametrize(
    ("flags", "code", "sentence"),
    [
        (["-r", "1,9"], Exit.REFUSED, "Broker 9 is not there; the cluster has the brokers 1, 2, 3"),
        (["-r", "1,1"], Exit.REFUSED, "name one broker at least, and each once"),
        (["-r", "1", "-p", "7"], Exit.REFUSED, "has no partition 7; it has 0 to 0"),
        (["-r", "one"], Exit.USAGE, "is not a list of broker ids such as 1,2,3"),
        (["-r", ""], Exit.USAGE, "is not a list of broker ids such as 1,2,3"),
        (["-r", "1", "--cancel"], Exit.USAGE, "give one of --replicas, --cancel, --list"),
        ([], Exit.USAGE, "give one of --replicas, --cancel, --list"),
        (["--list", "--replace"], Exit.USAGE, "--replace and --no-wait go with --replicas"),
    ],
)
def test_a_reassignment_that_cannot_be_says_what_to_do(
    cluster: RunningCluster, flags: list[str], code: Exit, sentence: str
) -> None:
    if "refused" not in cluster.millrace("topic", "list").stdout:
        create(cluster, "refused", partitions=1, replicas=2)
    refused = cluster.millrace("topic", "reassign", "refused", *flags)
    assert refused.exit_code == code
    assert sentence in " ".join(refused.stderr.replace("│", "").split())
    assert refused.stdout == ""
