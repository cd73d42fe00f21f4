"""Commands that move replicas and leaders of a cluster: three broker processes."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from millrace_cli.exits import Exit
from millrace_cli.local_cluster.layout import LAYOUT_NAME, Layout
from millrace_server.testing.reserved_ports import HOST, ReservedPorts
from tests.cli.json_shapes import check_shape, documented
from tests.cli.running_cluster import RunningCluster, started
from tests.hang_timeout import HANG_TIMEOUT_S


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


@pytest.mark.parametrize("flags", [["-r", "1"], ["--cancel"], ["--list", "-p", "0"]])
def test_only_the_list_of_reassignments_goes_without_a_topic(
    cluster: RunningCluster, flags: list[str]
) -> None:
    refused = cluster.millrace("topic", "reassign", *flags)
    assert (refused.exit_code, refused.stdout) == (Exit.USAGE, "")
    assert "give the name of a topic" in " ".join(refused.stderr.replace("│", "").split())


def test_the_first_replica_leads_where_it_is_asked_for(cluster: RunningCluster) -> None:
    millrace, topic = cluster.millrace, create(cluster, "led", partitions=2, replicas=3)
    cluster.until(lambda status: bool(status["healthy"]))
    old = [each["leader"] for each in described(cluster, topic)]
    new = [1 + leader % 3 for leader in old]
    for number, leader in enumerate(new):
        others = [each for each in (1, 2, 3) if each != leader]
        replicas = ",".join(map(str, [leader, *others]))
        flags = ["-p", str(number), "-r", replicas]
        assert millrace("topic", "reassign", topic, *flags).exit_code == 0
    one = millrace("topic", "elect-leaders", topic, "--partition", "0")
    assert (one.exit_code, one.stdout) == (0, f"{topic}\t0\t{new[0]}\n")
    assert one.stderr == "millrace: 1 partition got a leader\n"
    rest = json.loads(millrace("topic", "elect-leaders", topic, "--json").stdout)
    assert rest == [{"topic": topic, "partition": 1, "leader": new[1], "error": None}]
    check_shape(documented()["topic", "elect-leaders"], rest)
    again = millrace("topic", "elect-leaders", topic)
    assert (again.exit_code, again.stdout) == (0, "")
    assert "nothing to elect: the first replica of each partition leads" in again.stderr
    # There is nothing to ask about, because each partition has a leader.
    unclean = millrace("topic", "elect-leaders", topic, "--unclean")
    assert (unclean.exit_code, unclean.stdout) == (0, "")
    assert "nothing to elect: each partition has a leader" in unclean.stderr
    missing = millrace("topic", "elect-leaders", "nope")
    assert missing.exit_code == Exit.REFUSED
    assert "There is no topic 'nope'" in missing.stderr


@contextmanager
def fourth_broker(cluster: RunningCluster, data: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Broker 4, which is in service and does not vote."""
    quorum = Layout.decode((cluster.directory / LAYOUT_NAME).read_text()).quorum
    reserved = ReservedPorts(2)
    listen, broker_listen = (f"{HOST}:{port}" for port in reserved.ports)
    flags = {"--data": str(data), "--listen": listen, "--broker-listen": broker_listen}
    words = [word for pair in flags.items() for word in pair]
    process = cluster.run_beside("serve", "--node-id", "4", "--quorum", quorum, *words)
    cluster.until(
        lambda status: any(b["node_id"] == 4 and not b["fenced"] for b in status["brokers"])
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(HANG_TIMEOUT_S)
        reserved.release()


def test_a_broker_is_retired_in_two_steps(cluster: RunningCluster, tmp_path: Path) -> None:
    millrace, topic = cluster.millrace, create(cluster, "spread", partitions=4, replicas=1)
    sent = millrace.process("produce", topic, stdin=b"".join(b"%d\n" % n for n in range(100)))
    assert sent.returncode == 0, sent.stderr
    with fourth_broker(cluster, tmp_path / "4"):
        assert millrace("topic", "reassign", topic, "-r", "4").exit_code == 0
        emptied = millrace("broker", "retire", "4")
        assert (emptied.exit_code, emptied.stdout.split()[-3:]) == (0, ["4", "0", "moved"])
        assert "Broker 4 has no replicas and is in service; stop it, and ret" in emptied.stderr
        again = millrace("broker", "retire", "4")
        assert (again.exit_code, again.stdout) == (Exit.REFUSED, "")
        assert all(4 not in each["replicas"] for each in described(cluster, topic))
        assert len(millrace("consume", topic).stdout.splitlines()) == 100
    retired = millrace("broker", "retire", "4", "--json")
    assert json.loads(retired.stdout) == {"node_id": 4, "replicas": 0, "retired": True}
    check_shape(documented()["broker", "retire"], json.loads(retired.stdout))
    shown = json.loads(millrace("cluster", "status", "--json").stdout)
    assert [each["node_id"] for each in shown["brokers"]] == [1, 2, 3]
    gone = millrace("broker", "retire", "4")
    assert gone.exit_code == Exit.REFUSED
    assert "There is no broker 4; the cluster has 1, 2, 3" in gone.stderr
    voter = millrace("broker", "retire", "3")
    assert voter.exit_code == Exit.REFUSED
    assert "is a voter of the metadata quorum; remove it from that first" in voter.stderr


def test_the_reassignments_of_all_topics_are_listed_and_cancelled(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    millrace = cluster.millrace
    topics = [create(cluster, name, partitions=1, replicas=1) for name in ("moved-2", "moved-1")]
    before = {topic: described(cluster, topic)[0]["replicas"] for topic in topics}
    with fourth_broker(cluster, tmp_path / "4") as away:
        away.send_signal(signal.SIGSTOP)
        try:
            for topic in topics:
                begun = millrace("topic", "reassign", topic, "-r", "4", "--no-wait")
                assert (begun.exit_code, begun.output) == (0, waiting_rows([topic], before))
            listed = millrace("topic", "reassign", "--list")
            assert (listed.exit_code, listed.output) == (0, waiting_rows(sorted(topics), before))
            for topic in topics:
                assert millrace("topic", "reassign", topic, "--cancel").exit_code == 0
            assert millrace("topic", "reassign", "--list").output == ""
        finally:
            away.send_signal(signal.SIGCONT)
    assert millrace("broker", "retire", "4").exit_code == 0


def waiting_rows(topics: list[str], before: dict[str, list[int]]) -> str:
    """How replicas that move to broker 4 are shown, while it is away."""
    return "".join(f"{topic}\t0\t4\t4\t{before[topic][0]}\t4\n" for topic in topics)


def test_voters_are_added_and_removed(cluster: RunningCluster, tmp_path: Path) -> None:
    millrace = cluster.millrace

    def voters() -> list[int]:
        shown = json.loads(millrace("cluster", "status", "--json").stdout)
        return [each["node_id"] for each in shown["quorum"]["replicas"] if each["voter"]]

    with fourth_broker(cluster, tmp_path / "4"):
        added = millrace("cluster", "add-voter", "4")
        assert (added.exit_code, added.output) == (0, "")
        assert voters() == [1, 2, 3, 4]
        again = millrace("cluster", "add-voter", "4")
        assert again.exit_code == Exit.REFUSED
        assert "Broker 4 votes already, with the directory" in again.stderr
        removed = millrace("cluster", "remove-voter", "4", "--json")
        assert json.loads(removed.stdout) == {"node_id": 4, "voter": False}
        check_shape(documented()["cluster", "remove-voter"], json.loads(removed.stdout))
        assert voters() == [1, 2, 3]
    assert millrace("broker", "retire", "4").exit_code == 0
    missing = millrace("cluster", "remove-voter", "4")
    assert missing.exit_code == Exit.REFUSED
    assert "Broker 4 is no voter; the voters are brokers 1, 2, 3" in missing.stderr
    unknown = millrace("cluster", "add-voter", "9")
    assert unknown.exit_code == Exit.REFUSED
    assert "There is no broker 9" in unknown.stderr
    malformed = millrace("cluster", "remove-voter", "1", "--directory", "x")
    assert malformed.exit_code == Exit.USAGE
