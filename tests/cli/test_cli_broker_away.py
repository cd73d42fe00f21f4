"""A broker that stops to answer: the commands say so, and end with exit code 69."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from typing import IO

import pytest

from millrace_cli.exits import Exit
from tests.cli.conftest import Millrace, Serve, Serving, serving
from tests.hang_timeout import HANG_TIMEOUT_S


@pytest.fixture
def frozen(serve: Serve) -> Iterator[Serving]:
    """A broker of its own, which the test stops with SIGSTOP."""
    environment = {"MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
    with serve("--log-level", "error", environment=environment) as running:
        yield running
        running.process.send_signal(signal.SIGCONT)


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory, closed_port: str) -> Iterator[Serving]:
    """A broker that sends its clients to a port where no server listens."""
    data = str(tmp_path_factory.mktemp("wrong"))
    with serving("--data", data, "--advertise", closed_port, "--log-level", "error") as running:
        yield running


@pytest.fixture
def millrace(frozen: Serving) -> Millrace:
    """The command line, told of that broker."""
    found = Millrace(frozen.servers)
    assert found("topic", "create", "t").exit_code == 0
    assert found.process("produce", "t", stdin=b"one\n").returncode == 0
    return found


def stderr_of(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stderr is not None
    return process.stderr


def test_commands_say_that_no_broker_answers_and_end_with_69(
    millrace: Millrace, frozen: Serving
) -> None:
    timeout = ("--broker-timeout", "3")
    with (
        millrace.running("consume", "t", "--follow", *timeout) as consumer,
        millrace.running("consume", "t", "-g", "g", "--follow", *timeout) as member,
        millrace.running(
            "produce", "t", "--broker-timeout", "6", stdin=subprocess.PIPE
        ) as producer,
    ):
        assert producer.stdin is not None
        for reader in (consumer, member):
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"one\n"
        producer.stdin.write(b"two\n")
        producer.stdin.flush()
        assert consumer.stdout is not None
        assert consumer.stdout.readline() == b"two\n"
        frozen.process.send_signal(signal.SIGSTOP)
        producer.stdin.write(b"three\n")
        producer.stdin.flush()
        with (
            millrace.running("consume", "t", *timeout) as late,
            millrace.running("produce", "t", *timeout, stdin=subprocess.PIPE) as late_producer,
        ):
            for process in (consumer, member, producer, late, late_producer):
                first = stderr_of(process).readline().decode()
                expected = (
                    "no ack for 1 record; waiting up to 6 s"
                    if process is producer
                    else f"no broker of {frozen.servers} answers; waiting up to 3 s"
                )
                assert first == f"millrace: {expected}\n"
            for process in (consumer, member, producer, late, late_producer):
                assert process.wait(timeout=HANG_TIMEOUT_S) == Exit.UNAVAILABLE
            end = f"millrace: no broker of {frozen.servers} answers; gave up after 3 s\n"
            assert stderr_of(late_producer).read().decode() == end
        told = b"1 record more was sent without an ack; the topic may have it\n"
        assert told in stderr_of(producer).read()


def test_a_wait_that_ends_well_is_told_and_loses_nothing(
    millrace: Millrace, frozen: Serving
) -> None:
    with millrace.running("consume", "t", "--follow") as consumer:
        assert consumer.stdout is not None
        assert consumer.stdout.readline() == b"one\n"
        frozen.process.send_signal(signal.SIGSTOP)
        assert b"waiting up to 60 s" in stderr_of(consumer).readline()
        frozen.process.send_signal(signal.SIGCONT)
        assert stderr_of(consumer).readline() == b"millrace: the wait is over\n"
        assert millrace.process("produce", "t", stdin=b"two\n").returncode == 0
        assert consumer.stdout.readline() == b"two\n"


@pytest.mark.parametrize("again", [False, True], ids=["one signal", "two signals"])
def test_an_interrupted_producer_says_what_it_waits_for_and_a_second_signal_ends_it(
    millrace: Millrace, frozen: Serving, again: bool
) -> None:
    with (
        millrace.running("consume", "t", "--follow") as consumer,
        # No request ends while the broker is frozen, however slow the machine is.
        millrace.running(
            "produce",
            "t",
            "--broker-timeout",
            "600",
            "-X",
            "request_timeout_ms=600000",
            stdin=subprocess.PIPE,
        ) as producer,
    ):
        assert producer.stdin is not None
        producer.stdin.write(b"two\n")
        producer.stdin.flush()
        assert consumer.stdout is not None
        assert [consumer.stdout.readline() for _ in range(2)] == [b"one\n", b"two\n"]
        frozen.process.send_signal(signal.SIGSTOP)
        producer.stdin.write(b"three\nfour\n")
        producer.stdin.flush()
        # It has read them.
        assert b"no ack for 2 records" in stderr_of(producer).readline()
        producer.send_signal(signal.SIGINT)
        line = stderr_of(producer).readline()
        assert line == (
            b"millrace: waiting up to 5 s for the broker to acknowledge 2 records; "
            b"^C again ends it at once\n"
        )
        if again:
            producer.send_signal(signal.SIGINT)
        assert producer.wait(timeout=HANG_TIMEOUT_S) == Exit.INTERRUPTED
        summary = stderr_of(producer).read()
        assert b"sent 1 record, 3 bytes" in summary
        assert b"2 records more were sent without an ack; the topic may have them" in summary


@pytest.mark.parametrize(
    "command",
    [
        ("consume", "t"),
        ("consume", "t", "--group", "g"),
        ("consume", "t", "--follow"),
        ("produce", "t"),
        ("topic", "list"),
        ("bench", "produce", "t"),
    ],
    ids=" ".join,
)
def test_a_broker_that_advertises_a_wrong_address_is_named_by_it(
    wrong: Serving, closed_port: str, command: tuple[str, ...]
) -> None:
    ran = Millrace(wrong.servers).process(*command, stdin=b"one\n")
    assert (ran.returncode, ran.stdout) == (Exit.UNAVAILABLE, b"")
    assert ran.stderr.decode() == (
        f"millrace: the broker at {wrong.servers} advertises another address to its clients, and "
        f"there is no broker at {closed_port}: Connection refused. Set its `advertise` (millrace "
        "serve --advertise HOST:PORT) to an address that its clients can reach\n"
    )
