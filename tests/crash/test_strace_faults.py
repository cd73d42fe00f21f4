"""A real broker process on a failing kernel: strace makes system calls on a segment fail.

What the broker does then is the table of docs/durability.md; a restart must find all that was
acked. The last test watches a fetch leave: the payload goes from the page cache to the socket.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from millrace import Admin, Consumer, MillraceError, Producer
from tests.crash.kill_rounds import BrokerProcess
from tests.hang_timeout import HANG_TIMEOUT_S

TOPIC = "faults"
DISK_EXIT = 5


def _missing() -> str | None:
    """Why these tests cannot run here; None if they can."""
    if shutil.which("strace") is None:
        return "strace is not installed; it injects the faults"
    tried = subprocess.run(["strace", "-qq", "-e", "trace=none", "true"], capture_output=True)
    if tried.returncode:
        return f"strace may not trace here: {tried.stderr.decode().strip()}"
    return None


pytestmark = pytest.mark.skipif(bool(_missing()), reason=_missing() or "")


def tracing(data: Path, *expressions: str, to: Path) -> BrokerProcess:
    """A broker whose calls on the topic's first segment are traced."""
    segment = data / f"{TOPIC}-0" / "00000000000000000000.log"
    filters = [part for expression in expressions for part in ("-e", expression)]
    under = ("strace", "-f", "-qq", "-o", str(to), "-P", str(segment), *filters)
    return BrokerProcess(data, under=under)


@asynccontextmanager
async def running(broker: BrokerProcess) -> AsyncIterator[str]:
    """Runs a broker, and kills it at the end unless it has ended."""
    await broker.start()
    try:
        yield broker.servers
    finally:
        await broker.kill()


async def written(data: Path) -> None:
    """A topic with records, by a broker that was killed."""
    async with running(BrokerProcess(data)) as servers:
        async with Admin(servers) as admin:
            await admin.create_topic(TOPIC, partitions=1)
        async with Producer(servers) as producer:
            for number in range(10):
                await producer.send(TOPIC, b"%d" % number)


async def acked_until_refused(servers: str, *, first: int = 10) -> list[int]:
    """Sends one record after the other until one is not acked, at most a thousand."""
    acked: list[int] = []
    # Its close raises too what was not delivered.
    try:
        async with Producer(
            servers, delivery_timeout_ms=3_000, request_timeout_ms=3_000
        ) as producer:
            for number in range(first, first + 1_000):
                await producer.send(TOPIC, b"%d" % number)
                acked.append(number)
    except MillraceError:
        return acked
    raise AssertionError("every record was acked")


async def values_after_restart(data: Path) -> list[int]:
    """All that a new broker process serves."""
    async with (
        running(BrokerProcess(data)) as servers,
        Consumer(servers, TOPIC, start="earliest") as consumer,
    ):
        (end,) = (await consumer.end_offsets()).values()
        found: list[int] = []
        while len(found) < end:
            found += [int(record.value or b"") for record in await consumer.getmany()]
        return found


@pytest.mark.parametrize("fault", ["fdatasync:error=EIO", "pwrite64:error=EIO"])
async def test_a_broker_whose_disk_fails_ends_and_has_lost_nothing_acked(
    tmp_path: Path, fault: str
) -> None:
    data = tmp_path / "data"
    await written(data)
    call = fault.partition(":")[0]
    # strace counts by thread: each may do a few before the first one fails.
    broker = tracing(data, f"trace={call}", f"inject={fault}:when=4+", to=tmp_path / "trace")
    await broker.start()
    try:
        acked = await acked_until_refused(broker.servers)
        async with asyncio.timeout(HANG_TIMEOUT_S):
            code, stderr = await broker.ended()
    finally:
        await broker.kill()
    assert "INJECTED" in (tmp_path / "trace").read_text()
    assert code == DISK_EXIT
    assert "Input/output error" in stderr
    assert acked, "it went well before it went wrong"
    found = await values_after_restart(data)
    assert found[: 10 + len(acked)] == [*range(10), *acked]
    # What was refused may be there or not, in order and once.
    assert found == list(range(len(found)))
    assert len(found) <= 10 + len(acked) + 1


async def test_a_full_disk_refuses_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    data = tmp_path / "data"
    await written(data)
    broker = tracing(
        data,
        "trace=pwrite64",
        "inject=pwrite64:error=ENOSPC:when=5..8",
        to=tmp_path / "trace",
    )
    async with running(broker) as servers, Producer(servers) as producer:
        for number in range(10, 40):
            # Refused four times on the way, and sent again by the producer.
            await producer.send(TOPIC, b"%d" % number)
    assert (tmp_path / "trace").read_text().count("INJECTED") == 4
    assert await values_after_restart(data) == list(range(40))


async def test_records_leave_through_sendfile_and_no_other_way(tmp_path: Path) -> None:
    data, trace = tmp_path / "data", tmp_path / "trace"
    await written(data)
    marker, count = b"payload" * 1_000, 40
    calls = "sendfile,write,writev,sendto,sendmsg,splice,pwrite64"
    under = ("strace", "-f", "-qq", "-s", "200", "-o", str(trace), "-e", f"trace={calls}")
    async with running(BrokerProcess(data, under=under)) as servers:
        async with Producer(servers) as producer:
            for _ in range(count):
                await producer.send(TOPIC, marker)
        async with Consumer(servers, TOPIC, start="earliest") as consumer:
            left = count + 10
            while left:
                left -= len(await consumer.getmany())
            # Bytes arrive before strace writes down the call that sent them. The loop answers
            # a later question only after that.
            await consumer.end_offsets()
    lines = trace.read_text().splitlines()
    assert any("pwrite64(" in line and "payload" in line for line in lines), "it is seen to arrive"
    sent_by_kernel = sum(
        int(found[1])
        for line in lines
        if (found := re.search(r"sendfile(?:\(| resumed).*= (\d+)$", line))
    )
    assert sent_by_kernel >= count * len(marker)
    # What an earlier life of the process wrote is read once, in a worker thread, to check it.
    copied = [
        line
        for line in lines
        if re.search(r" (write|writev|sendto|sendmsg|splice)\(", line) and "payload" in line
    ]
    assert copied == []
