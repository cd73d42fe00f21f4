"""Records through `produce | broker | consume` to a reader that is slow in every way.

Owns one run: lines into `produce`, members of a group one after the other, and the reader of their
stdout. The reader stalls, a member is stopped and continued, or ended by a signal; then the group's
committed offset must be the number of lines that the member and those before it have written. All
processes run in Python's unbuffered mode, and every second pipe is non-blocking.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO

from tests.cli.conftest import Millrace
from tests.hang_timeout import HANG_TIMEOUT_S

TOPIC = "lines"
GROUP = "readers"
READ_BYTES = 1 << 16
_ENDS = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGHUP: 129}
"""How a member is ended, and its exit code."""


@dataclass
class Found:
    """What a run has seen."""

    lines: int = 0
    """Whole lines that the reader got."""
    size: int = 0
    lives: int = 0
    stalls: int = 0
    stops: int = 0
    faults: list[str] = field(default_factory=list)
    sent_md5: str = ""
    read_md5: str = ""
    lag: int = -1


def run(servers: str, *, records: int, actions: int, seed: int) -> Found:
    """Sends `records` lines and reads them back, with `actions` between the first and the last."""
    millrace = Millrace(servers, {"PYTHONUNBUFFERED": "1"})
    created = millrace("topic", "create", TOPIC, "--partitions", "1")
    assert created.exit_code == 0, created.output
    found, rng = Found(), random.Random(seed)
    moments = sorted(rng.sample(range(records), actions))
    with millrace.running("produce", TOPIC, stdin=subprocess.PIPE) as producer:
        assert producer.stdin is not None
        sent = hashlib.md5(usedforsecurity=False)
        feeder = threading.Thread(target=_feed, args=(producer.stdin, records, sent))
        feeder.start()
        read = hashlib.md5(usedforsecurity=False)
        while found.lines < records:
            for whole in _life(millrace, found, moments, records, rng):
                read.update(whole)
        feeder.join()
        if producer.wait(timeout=HANG_TIMEOUT_S):
            found.faults.append(f"produce ended with {producer.returncode}")
    found.sent_md5, found.read_md5 = sent.hexdigest(), read.hexdigest()
    found.lag = records - _committed(millrace)
    return found


def _feed(stdin: IO[bytes], records: int, sent: hashlib._Hash) -> None:
    for first in range(0, records, 1000):
        chunk = b"".join(_line(n) for n in range(first, min(first + 1000, records)))
        sent.update(chunk)
        stdin.write(chunk)
    stdin.close()


def _line(number: int) -> bytes:
    """A line with bytes that are not UTF-8."""
    return b"%d\t\xff%b\r\n" % (number, b"\x00\xfe" * (number % 23))


def _life(
    millrace: Millrace, found: Found, moments: list[int], records: int, rng: random.Random
) -> Iterator[bytes]:
    """One member, to its end; yields the whole lines that it writes."""
    found.lives += 1
    reader, writer = os.pipe()
    os.set_blocking(writer, found.lives % 2 == 1)
    flags = ("consume", TOPIC, "--group", GROUP, "--follow")
    with (
        os.fdopen(reader, "rb") as pipe,
        millrace.running(*flags, stdout=writer) as member,
    ):
        os.close(writer)
        rest = b""
        while found.lines < records:
            chunk = pipe.read1(READ_BYTES)
            if not chunk:
                found.faults.append(f"a member ended by itself at line {found.lines}")
                break
            whole, rest = _cut(rest + chunk, found)
            yield whole
            if moments and found.lines >= moments[0]:
                del moments[0]
                if _act(millrace, found, member, rng):
                    break
        number = rng.choice(tuple(_ENDS))
        member.send_signal(number)
        # It ends while the pipe is full: nothing is read before.
        code = member.wait(timeout=HANG_TIMEOUT_S)
        if code != _ENDS[number]:
            found.faults.append(f"{number.name} ended a member with {code}")
        yield _cut(rest + pipe.read(), found)[0]
    committed = _committed(millrace)
    if committed != found.lines:
        found.faults.append(f"{found.lines} lines were written, and {committed} are committed")


def _cut(data: bytes, found: Found) -> tuple[bytes, bytes]:
    """The whole lines, and the part of a line behind them."""
    end = data.rfind(b"\n") + 1
    found.lines += data.count(b"\n")
    found.size += end
    return data[:end], data[end:]


def _act(
    millrace: Millrace, found: Found, member: subprocess.Popen[bytes], rng: random.Random
) -> bool:
    """Stalls, stops and continues the member, or returns True to end it."""
    match rng.choice(("stall", "stop", "end")):
        case "stall":
            found.stalls += 1
            _pass_time(millrace)
        case "stop":
            found.stops += 1
            member.send_signal(signal.SIGSTOP)
            _pass_time(millrace)
            member.send_signal(signal.SIGCONT)
        case _:
            _pass_time(millrace)
            return True
    return False


def _pass_time(millrace: Millrace) -> None:
    """Does something for long enough that the pipe is full afterwards."""
    millrace.process("topic", "list")


def _committed(millrace: Millrace) -> int:
    """The committed offset of the group in the only partition."""
    for line in millrace("group", "describe", GROUP).stdout.splitlines():
        kind, *cells = line.split("\t")
        if kind == "partition" and cells[2] != "-":
            return int(cells[2])
    return 0
