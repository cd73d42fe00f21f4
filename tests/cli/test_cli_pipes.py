"""Stdout of a command: every byte arrives, or exit code and lag say which do not."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from millrace_cli.exits import Exit
from millrace_cli.standard_output import WholeWrites
from tests.cli.conftest import Millrace, Serving
from tests.command_line import COMMAND
from tests.hang_timeout import HANG_TIMEOUT_S

LINES = b"".join(b"%d\n" % n for n in range(60_000))
"""More than fits into a pipe."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def unbuffered(millrace: Millrace) -> Millrace:
    """The command line in Python's unbuffered mode, as in most containers."""
    millrace.environment["PYTHONUNBUFFERED"] = "1"
    return millrace


@pytest.fixture(scope="module")
def filled(broker: Serving) -> str:
    """A topic with `LINES` in its only partition."""
    millrace = Millrace(broker.servers)
    name = f"filled-{uuid.uuid4()}"
    assert millrace("topic", "create", name).exit_code == 0
    sent = millrace.process("produce", name, stdin=LINES)
    assert sent.returncode == 0, sent.stderr
    return name


@pytest.fixture
def group() -> str:
    """The name of a group for one test."""
    return uuid.uuid4().hex


@contextmanager
def pipe(*, blocking: bool = True) -> Iterator[tuple[IO[bytes], int]]:
    """The read end and the write end of a pipe that holds one page."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, blocking)
    fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, PAGE_BYTES)
    with os.fdopen(read_end, "rb") as reader:
        yield reader, write_end


def await_full(reader: IO[bytes], *, line_bytes: int = 0) -> None:
    """Returns when the page is full, so that the writer waits.

    A page is full when the next line of up to `line_bytes` does not fit.
    """
    count = bytearray(4)
    while int.from_bytes(count, sys.byteorder) < PAGE_BYTES - line_bytes:
        os.sched_yield()
        fcntl.ioctl(reader, termios.FIONREAD, count)


def lag(millrace: Millrace, group: str) -> int:
    described = millrace("group", "describe", group)
    assert described.exit_code == 0, described.stderr
    rows = [line.split("\t") for line in described.stdout.splitlines()]
    return sum(int(row[5]) for row in rows if row[0] == "partition")


def members(millrace: Millrace, group: str) -> int:
    described = millrace("group", "describe", group)
    return sum(line.startswith("member\t") for line in described.stdout.splitlines())


@pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "non-blocking"])
@pytest.mark.parametrize("is_member", [True, False], ids=["group", "no group"])
def test_every_byte_arrives_at_a_slow_reader(
    unbuffered: Millrace, filled: str, group: str, blocking: bool, is_member: bool
) -> None:
    flags = ("-g", group) if is_member else ()
    with (
        pipe(blocking=blocking) as (reader, writer),
        unbuffered.running("consume", filled, *flags, stdout=writer) as command,
    ):
        os.close(writer)
        await_full(reader)
        # Stopped in a write, as by ^Z, and continued.
        command.send_signal(signal.SIGSTOP)
        command.send_signal(signal.SIGCONT)
        found = reader.read()
        assert command.wait(timeout=HANG_TIMEOUT_S) == 0
    assert found == LINES
    if is_member:
        assert lag(unbuffered, group) == 0


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, Exit.TERMINATED),
        (signal.SIGINT, Exit.INTERRUPTED),
        (signal.SIGHUP, Exit.HUNG_UP),
    ],
    ids=["SIGTERM", "SIGINT", "SIGHUP"],
)
def test_after_a_signal_the_lag_is_what_was_not_written_and_the_member_has_left(
    unbuffered: Millrace, filled: str, group: str, number: signal.Signals, code: Exit
) -> None:
    with pipe(blocking=number is not signal.SIGTERM) as (reader, writer):
        with unbuffered.running("consume", filled, "-g", group, stdout=writer) as command:
            os.close(writer)
            await_full(reader)
            command.send_signal(number)
            assert command.wait(timeout=HANG_TIMEOUT_S) == code
            assert command.stderr is not None
            assert command.stderr.read() == b""
        found = reader.read()
    assert found == LINES[:PAGE_BYTES]
    assert lag(unbuffered, group) == LINES.count(b"\n") - found.count(b"\n")
    assert members(unbuffered, group) == 0


def test_a_closed_pipe_is_exit_141_and_the_lag_is_what_it_did_not_take(
    unbuffered: Millrace, filled: str, group: str
) -> None:
    with (
        pipe() as (reader, writer),
        unbuffered.running("consume", filled, "-g", group, stdout=writer) as command,
    ):
        os.close(writer)
        await_full(reader)
        reader.close()
        assert command.wait(timeout=HANG_TIMEOUT_S) == Exit.PIPE_CLOSED
        assert command.stderr is not None
        assert command.stderr.read() == b""
    taken = LINES[:PAGE_BYTES].count(b"\n")
    assert lag(unbuffered, group) == LINES.count(b"\n") - taken
    assert members(unbuffered, group) == 0


def test_a_command_without_an_event_loop_writes_whole_too(tmp_path: Path) -> None:
    hex_file = tmp_path / "hex"
    hex_file.write_text("000000104d520003000000000007 0000ffffffff " * 500)
    flags = [*COMMAND, "dissect", str(hex_file)]
    whole = subprocess.run(flags, capture_output=True, timeout=HANG_TIMEOUT_S)
    with pipe(blocking=False) as (reader, writer):
        unbuffered = {**os.environ, "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(flags, stdout=writer, env=unbuffered) as command:
            os.close(writer)
            await_full(reader, line_bytes=120)
            found = reader.read()
    assert len(found) > PAGE_BYTES
    assert (found, command.returncode) == (whole.stdout, whole.returncode)


def test_help_for_a_reader_that_has_gone_is_exit_141() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run([*COMMAND, "--help"], stdout=write_end, stderr=subprocess.PIPE)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (Exit.PIPE_CLOSED, b"")


@pytest.mark.parametrize("stdout", ["/dev/full", "closed"])
@pytest.mark.parametrize("is_member", [True, False], ids=["group", "no group"])
def test_output_that_goes_nowhere_is_exit_5_and_commits_nothing(
    millrace: Millrace, filled: str, group: str, stdout: str, is_member: bool
) -> None:
    redirect = ">&-" if stdout == "closed" else f">{stdout}"
    flags = ("-g", group) if is_member else ()
    script = f'"$@" {redirect}'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *COMMAND, "consume", filled, *flags],
        stderr=subprocess.PIPE,
        env={**os.environ, "MILLRACE_SERVERS": millrace.servers},
        timeout=HANG_TIMEOUT_S,
    )
    assert done.returncode == Exit.DISK
    assert len(done.stderr.splitlines()) == 1
    if is_member:
        # Without a commit the group has no partitions.
        assert "partition\t" not in millrace("group", "describe", group).stdout


def test_a_terminated_producer_sends_what_it_has_read(millrace: Millrace, topic: str) -> None:
    with millrace.running("produce", topic, "-p", "0", stdin=subprocess.PIPE) as writer:
        assert writer.stdin is not None
        writer.stdin.write(LINES + b"not a whole lin")
        writer.stdin.flush()
        with millrace.running("consume", topic, "--follow") as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"0\n"
        writer.send_signal(signal.SIGTERM)
        assert writer.wait(timeout=HANG_TIMEOUT_S) == Exit.TERMINATED
        assert writer.stderr is not None
        summary = writer.stderr.read().decode()
    found = millrace.process("consume", topic).stdout
    assert LINES.startswith(found)
    assert f"sent {found.count(10):,} records, " in summary


def test_writes_that_are_cut_short_are_continued() -> None:
    data = bytes(range(256)) * 4096
    with pipe(blocking=False) as (reader, writer), ThreadPoolExecutor(1) as threads:
        taken = threads.submit(reader.read)
        assert WholeWrites(writer).write(data) == len(data)
        os.close(writer)
        assert taken.result() == data
