"""`millrace bench` against a real broker: what is sent and read, the summary, and the end."""

from __future__ import annotations

import json
import math
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from millrace.records import Record
from millrace.sync import Admin, Consumer
from millrace_cli import progress_display
from millrace_cli.bench.latency_histogram import LatencyHistogram
from millrace_cli.bench.random_values import RandomValues
from millrace_cli.bench.schedule import TIMER_NS, Schedule
from millrace_cli.exits import Exit
from tests.cli.conftest import Millrace, Serve
from tests.hang_timeout import HANG_TIMEOUT_S

LATENCIES = ("p50", "p95", "p99", "p99.9", "max")


def summary(printed: str) -> dict[str, Any]:
    """The summary, checked for what holds for each."""
    (line,) = printed.splitlines()
    found: dict[str, Any] = json.loads(line)
    assert list(found["latency_ms"]) == ["mean", *LATENCIES]
    if found["seconds"]:
        rate = found["records"] / found["seconds"]
        assert math.isclose(found["records_per_second"], rate, rel_tol=1e-3)
        assert math.isclose(
            found["mb_per_second"], found["bytes"] / found["seconds"] / 1e6, rel_tol=1e-3
        )
    return found


def latencies(found: dict[str, Any]) -> list[float]:
    """p50 to max, which rise."""
    values = [found["latency_ms"][name] for name in LATENCIES]
    assert values == sorted(values)
    assert 0 < found["latency_ms"]["mean"] <= values[-1]
    return values


def stored(millrace: Millrace, topic: str) -> list[Record]:
    with Consumer(millrace.servers, topic) as consumer:
        count = sum(consumer.end_offsets(*consumer.assignment()).values())
        return list(islice(consumer, count))


def temporary_topics(millrace: Millrace) -> list[str]:
    with Admin(millrace.servers) as admin:
        return [name for name in admin.list_topics() if name.startswith("bench-")]


def await_records(millrace: Millrace, topic: str = "") -> None:
    """Returns when the topic has several records, or without a name a temporary one.

    The first of them is then counted by its run: `latency` sends the next one after that, and the
    ack for it was sent before the broker says that there are more.
    """
    with Admin(millrace.servers) as admin:
        while True:
            for name in [topic] if topic else temporary_topics(millrace):
                places = [(name, each.partition) for each in admin.describe_topic(name).partitions]
                found = admin.list_offsets(dict.fromkeys(places, "latest"))
                if sum(each.offset for each in found.values()) > 1:
                    return


@pytest.fixture(autouse=True)
def _no_topic_remains(millrace: Millrace) -> Iterator[None]:
    yield
    assert temporary_topics(millrace) == []


def test_produce_sends_so_many_records_of_that_size(millrace: Millrace, topic: str) -> None:
    ran = millrace("bench", "produce", topic, "-n", "3000", "--record-size", "50", "--json")
    assert ran.exit_code == 0, ran.output
    found = summary(ran.stdout)
    assert (found["records"], found["not_acked"], found["bytes"]) == (3000, 0, 150_000)
    latencies(found)
    records = stored(millrace, topic)
    assert [len(each.value) for each in records if each.value] == [50] * 3000
    assert len({each.value for each in records}) == 3000


def test_a_summary_in_a_pipe_is_one_line_of_fields(millrace: Millrace, topic: str) -> None:
    ran = millrace("bench", "produce", topic, "-n", "7", "--record-size", "9", "-z", "zstd")
    assert ran.exit_code == 0, ran.output
    fields = ran.stdout.rstrip("\n").split("\t")
    assert len(fields) == 13
    assert fields[:3] == ["7", "0", "63"]


def test_a_limited_rate_is_not_exceeded(millrace: Millrace, topic: str) -> None:
    flags = ("-n", "51", "--throughput", "200", "--json")
    for command in ("produce", "latency"):
        found = summary(millrace("bench", command, topic, *flags).stdout)
        assert found["records"] == 51
        assert found["seconds"] >= 50 / 200


def test_records_linger_as_long_as_the_flag_says(millrace: Millrace, topic: str) -> None:
    flags = ("-n", "5", "--linger", "200", "--json")
    found = summary(millrace("bench", "produce", topic, *flags).stdout)
    assert latencies(found)[0] > 190


def test_without_acks_there_are_no_latencies(millrace: Millrace, topic: str) -> None:
    found = summary(millrace("bench", "produce", topic, "-n", "9", "--acks", "0", "--json").stdout)
    assert (found["records"], found["not_acked"]) == (9, None)
    assert {*found["latency_ms"].values()} == {None}


def test_settings_and_flags_of_the_producer_take_effect(millrace: Millrace, topic: str) -> None:
    flags = ("-n", "400", "--batch-size", "1000", "-X", "max_request_bytes=1000")
    assert millrace("bench", "produce", topic, *flags).exit_code == 0
    failed = millrace("bench", "produce", topic, *flags, "--record-size", "5000", "--json")
    assert failed.exit_code == Exit.REFUSED
    assert "1000" in failed.stderr
    assert len(stored(millrace, topic)) == 400


def test_the_first_failure_ends_a_run_and_the_summary_counts_what_was_not_acked(
    millrace: Millrace, topic: str
) -> None:
    assert millrace("topic", "alter", topic, "-c", "max.message.bytes=1000").exit_code == 0
    ran = millrace("bench", "produce", topic, "-n", "900", "--record-size", "2000", "--json")
    assert ran.exit_code == Exit.REFUSED
    assert "max.message.bytes" in ran.stderr
    found = summary(ran.stdout)
    assert found["records"] == 0
    assert 0 < found["not_acked"] <= 900


def test_consume_reads_and_counts_all_records_of_a_topic(millrace: Millrace, topic: str) -> None:
    lines = b"".join(b"k%03d:value\n" % number for number in range(500))
    sent = millrace.process("produce", topic, "-K", ":", stdin=lines)
    assert sent.returncode == 0, sent.stderr
    found = summary(millrace("bench", "consume", topic, "--json").stdout)
    assert (found["records"], found["bytes"]) == (500, 500 * len("k000value"))
    latencies(found)
    found = summary(millrace("bench", "consume", topic, "-n", "123", "--json").stdout)
    assert (found["records"], found["bytes"]) == (123, 123 * len("k000value"))


def test_consume_of_an_empty_topic_ends_at_once(millrace: Millrace, topic: str) -> None:
    ran = millrace("bench", "consume", topic)
    assert (ran.exit_code, ran.stdout.split("\t")[:3]) == (0, ["0", "0", "0.000"])


def test_a_temporary_topic_is_filled_read_and_removed(millrace: Millrace) -> None:
    flags = ("-n", "2500", "--record-size", "40", "--partitions", "3", "-c", "durability=os")
    ran = millrace("bench", "consume", *flags, "-z", "lz4", "--json")
    assert ran.exit_code == 0, ran.output
    found = summary(ran.stdout)
    assert (found["records"], found["bytes"]) == (2500, 100_000)


def test_latency_counts_its_own_records_among_those_of_others(
    millrace: Millrace, topic: str
) -> None:
    with millrace.running("bench", "produce", topic, "--throughput", "500") as other:
        await_records(millrace, topic)
        ran = millrace("bench", "latency", topic, "-n", "60", "--record-size", "24", "--json")
        other.send_signal(signal.SIGTERM)
        assert other.wait(timeout=HANG_TIMEOUT_S) == Exit.TERMINATED
    found = summary(ran.stdout)
    assert (found["records"], found["not_received"], found["bytes"]) == (60, 0, 60 * 24)
    latencies(found)
    sizes = [len(each.value) for each in stored(millrace, topic) if each.value]
    assert sizes.count(24) == 60


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["^C", "SIGTERM"])
@pytest.mark.parametrize("command", ["produce", "latency"])
def test_a_signal_ends_a_run_with_its_summary_and_removes_the_topic(
    millrace: Millrace, command: str, number: signal.Signals
) -> None:
    flags = ("--throughput", "1000", "-n", "10000000", "--json")
    with millrace.running("bench", command, *flags) as process:
        await_records(millrace)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=HANG_TIMEOUT_S)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[number], stderr
    found = summary(stdout.decode())
    assert 0 < found["records"] < 10_000_000
    assert found.get("not_acked", 0) == 0
    assert b"Traceback" not in stderr


def test_a_signal_during_the_filling_removes_the_topic(millrace: Millrace) -> None:
    with millrace.running("bench", "consume", "-n", "10000000000") as process:
        await_records(millrace)
        process.send_signal(signal.SIGTERM)
        stdout, stderr = process.communicate(timeout=HANG_TIMEOUT_S)
    assert (process.returncode, stdout) == (Exit.TERMINATED, b""), stderr


def test_a_broker_that_goes_away_is_exit_69_and_the_topic_that_may_remain_is_named(
    serve: Serve,
) -> None:
    with serve("--log-level", "error") as frozen:
        millrace = Millrace(frozen.servers)
        flags = ("--throughput", "100", "--broker-timeout", "2", "--json")
        with millrace.running("bench", "produce", *flags) as process:
            await_records(millrace)
            (name,) = temporary_topics(millrace)
            frozen.process.send_signal(signal.SIGSTOP)
            stdout, stderr = process.communicate(timeout=HANG_TIMEOUT_S)
            frozen.process.send_signal(signal.SIGCONT)
    assert process.returncode == Exit.UNAVAILABLE
    found = summary(stdout.decode())
    assert found["records"] > 0
    assert found["not_acked"] > 0
    assert f"may remain: millrace topic delete {name} removes it" in stderr.decode()
    assert b"no ack for " in stderr


@pytest.mark.parametrize("command", ["produce", "consume", "latency"])
def test_an_unknown_topic_and_no_broker_are_one_sentence_and_no_summary(
    millrace: Millrace, command: str, closed_port: str
) -> None:
    ran = millrace("bench", command, "no-such-topic")
    assert (ran.exit_code, ran.stdout) == (Exit.REFUSED, "")
    assert "no topic 'no-such-topic'" in ran.stderr
    ran = millrace("bench", command, "--servers", closed_port)
    assert (ran.exit_code, ran.stdout) == (Exit.UNAVAILABLE, "")
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("produce", "-n", "0"), "--records"),
        (("produce", "--record-size", "99999999"), "--record-size"),
        (("produce", "--throughput", "0"), "--throughput"),
        (("produce", "--linger", "-1"), "--linger"),
        (("produce", "--batch-size", "99999999"), "batch_bytes"),
        (("produce", "-X", "linger=5"), "linger"),
        (("produce", "t", "--partitions", "3"), "leave them or t out"),
        (("latency", "t", "-c", "durability=os"), "leave them or t out"),
        (("latency", "--record-size", "23"), "--record-size"),
        (("consume", "t", "--record-size", "9"), "leave it or t out"),
        (("consume", "t", "-z", "lz4"), "leave it or t out"),
        (("consume", "-c", "durability"), "not KEY=VALUE"),
    ],
)
def test_a_wrong_flag_is_a_usage_error(
    millrace: Millrace, arguments: tuple[str, ...], sentence: str
) -> None:
    done = millrace.process("bench", *arguments)
    assert (done.returncode, done.stdout) == (Exit.USAGE, b"")
    assert sentence in " ".join(done.stderr.decode().split())


def test_progress_lines_say_records_rate_and_latency(
    millrace: Millrace, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_display, "LINE_S", 0)
    ran = millrace("bench", "produce", topic, "-n", "2000", "--json")
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("producing: 2,000 records, ")
    assert " records/s, " in last
    assert " MB/s, p99 " in last


def test_percentiles_are_one_percent_from_those_of_all_values() -> None:
    rng = random.Random(7)
    values = sorted(rng.lognormvariate(15, 2) for _ in range(20_000))
    latency = LatencyHistogram()
    for value in values:
        latency.add(int(value))
    for fraction in (0.5, 0.95, 0.99, 0.999):
        exact_ms = values[int(len(values) * fraction)] / 1e6
        found = latency.quantile(fraction)
        assert found is not None
        assert math.isclose(found, exact_ms, rel_tol=0.02)
    assert latency.max_ms == int(values[-1]) / 1e6


def test_a_record_that_is_sent_late_has_waited_since_it_was_due() -> None:
    schedule = Schedule(start_ns=0, rate=1000)
    ms = 1_000_000
    assert schedule.due_count(7 * ms) == 8
    assert schedule.due_ns(7) == 7 * ms
    # Sent within a step of the timer; sent 30 ms late.
    assert schedule.latency_ns(7, 7 * ms + TIMER_NS // 2, 9 * ms) == 2 * ms - TIMER_NS // 2
    assert schedule.latency_ns(7, 37 * ms, 39 * ms) == 32 * ms - TIMER_NS


def test_values_have_their_size_and_few_repetitions() -> None:
    for size in (1, 100, 1 << 20, (1 << 20) + 1):
        values = RandomValues(size)
        assert [len(each) for each in values.take(3)] == [size] * 3
    first = RandomValues(100).take(10_000)
    assert len({*first}) == 10_000
    assert first == RandomValues(100).take(10_000)


def test_the_process_runs_without_the_libraries_of_the_extras(
    millrace: Millrace, topic: str
) -> None:
    code = (
        "import sys\n"
        "for name in ('duckdb', 'numpy', 'pyarrow', 'pyspark'): sys.modules[name] = None\n"
        "from millrace_cli.main import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-c", code),
            *("bench", "produce", topic, "-n", "5", "-s", millrace.servers),
        ],
        capture_output=True,
        timeout=HANG_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
