"""Corruption on the disk is found before it is sent, refused with a message, and skipped."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from pathlib import Path

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_server.disk.cold_reads import PageCache
from millrace_server.disk.os_disk import OsDisk
from millrace_server.partitions.scrub import Scrub
from millrace_server.testing import Broker
from tests.broker.wire import Wire, batch, connect, open_files, until, values_of

COUNT = 24
SMALL = {"segment.bytes": "2048", "index.interval.bytes": "500", "retention.ms": "-1"}


def value(number: int) -> bytes:
    return b"%04d" % number + random.Random(number).randbytes(200)


BATCH_BYTES = len(batch(value(0)))


async def fill(wire: Wire) -> None:
    await wire.create("t", partitions=2, configs=SMALL)
    for number in range(COUNT):
        await wire.produce("t", batch(value(number)))
        await wire.produce("t", batch(value(number)), partition=1)


def segments(data: Path) -> list[Path]:
    return sorted((data / "t-0").glob("*.log"))


def change(path: Path, position: int, bit: int = 0) -> bytes:
    """Flips a bit of a file, on the disk; returns what is there now."""
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    with path.open("r+b") as file:
        file.write(content)
        os.fsync(file.fileno())
    return bytes(content)


async def consume(port: int) -> tuple[list[bytes | None], list[tuple[int, int, str]], int]:
    """Reads partition 0 as a consumer that goes on behind what is refused.

    Returns the values, what was refused as (offset, where it goes on, sentence), and how many
    answers were cut off.
    """
    got: list[bytes | None] = []
    refused = []
    offset = cut = 0
    while offset < COUNT:
        assert cut < 3, "a client that asks again is told why"
        async with connect(port) as wire:
            try:
                while offset < COUNT:
                    result = await wire.fetch("t", offset)
                    if result.error_code == ErrorCode.CORRUPT_MESSAGE:
                        sentence = result.error_message or ""
                        behind = int(sentence.partition("seek to offset ")[2].split()[0])
                        refused.append((offset, behind, sentence))
                        offset = behind
                        continue
                    assert result.error_code == ErrorCode.NONE
                    values = values_of(result, offset=offset)
                    assert values
                    got += values
                    offset += len(values)
            except (asyncio.IncompleteReadError, ConnectionError):
                cut += 1
    return got, refused, cut


@pytest.mark.parametrize("seed", range(8))
async def test_a_changed_byte_is_never_served_and_all_else_is(
    broker: Broker, wire: Wire, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """W-4.4.7"""
    await fill(wire)
    await broker.stop()
    rng = random.Random(seed)
    path = rng.choice(segments(broker.data)[:-1])
    position = rng.randrange(path.stat().st_size)
    if 12 <= position % BATCH_BYTES < 16:
        position += 4
    content = change(path, position, rng.randrange(8))
    await broker.start()
    hurt = int(path.stem) + position // BATCH_BYTES
    with caplog.at_level(logging.ERROR, "millrace"):
        got, ((offset, behind, sentence),), _ = await consume(broker.port)
        assert await consume(broker.port) == (got, [(offset, behind, sentence)], 0)
    assert offset == hurt
    assert got == [value(n) for n in range(COUNT) if not offset <= n < behind]
    assert behind - offset <= 3
    assert path.name in sentence
    assert f"at byte {BATCH_BYTES * (hurt - int(path.stem))}" in sentence
    lines = [r.msg for r in caplog.records if "not what was written" in str(r.msg)]
    assert [(line["path"], line["offset"]) for line in lines] == [(f"t-0/{path.name}", hurt)]  # type: ignore[index]
    assert path.read_bytes() == content, "the evidence is kept"
    async with connect(broker.port) as again:
        values: list[bytes | None] = []
        while len(values) < COUNT:
            values += values_of(await again.fetch("t", len(values), partition=1))
        assert values == [value(n) for n in range(COUNT)]
        assert (await again.produce("t", batch(b"next"))).base_offset == COUNT


async def test_corruption_while_the_broker_runs_is_found_once_it_is_read_from_the_disk(
    broker: Broker, wire: Wire
) -> None:
    await fill(wire)
    path = segments(broker.data)[0]
    got, refused, cut = await consume(broker.port)
    assert (len(got), refused, cut) == (COUNT, [], 0)
    change(path, 100)
    file = OsDisk(path.parent).open(path.name)

    def is_gone() -> bool:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return PageCache().is_cold(file, 0, path.stat().st_size)

    try:
        # What was sent stays in the cache until the kernel knows that it has arrived.
        async with asyncio.timeout(5):
            await until(is_gone)
    except TimeoutError:
        pytest.skip("this kernel or file system does not tell what the page cache holds")
    finally:
        file.release()
    got, refused, cut = await consume(broker.port)
    assert cut == 1
    assert [(offset, behind) for offset, behind, _ in refused] == [(0, 1)]
    assert got == [value(n) for n in range(1, COUNT)]


async def test_the_scrub_finds_corruption_that_no_client_reads(
    broker: Broker, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(wire)
    await broker.stop()
    paths = segments(broker.data)
    change(paths[1], 80)
    change(paths[2], BATCH_BYTES + 80)
    await broker.start()
    with caplog.at_level(logging.INFO, "millrace"):
        found = await broker.node.broker.scrub.pass_over()
        again = await broker.node.broker.scrub.pass_over()
    assert found == again
    assert (found.partitions, found.corrupt_ranges) == (3, 2)
    assert found.segments == 2 * len(paths) + 1
    assert found.size_bytes > 2 * COUNT * BATCH_BYTES
    lines = [r for r in caplog.records if "not what was written" in str(r.msg)]
    assert len(lines) == 2, "told once"
    _, refused, cut = await consume(broker.port)
    assert [offset for offset, _, _ in refused] == [int(paths[1].stem), int(paths[2].stem) + 1]
    assert cut == 0, "no answer was begun that could not be ended"


async def test_the_scrub_keeps_its_pace_and_survives_retention(
    broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(wire)
    slept: list[float] = []
    sleep = asyncio.sleep

    async def nap(delay_s: float) -> None:
        slept.append(delay_s)
        if len(slept) == 2:
            for path in segments(broker.data)[2:4]:
                path.unlink()
        await sleep(0)

    inside = broker.node.broker
    scrub = Scrub(
        inside.partitions,
        inside.env,
        bytes_per_second=1_000,
        interval_ms=1_000,
        cold_reads=PageCache(),
    )
    monkeypatch.setattr("millrace_server.partitions.scrub.asyncio.sleep", nap)
    found = await scrub.pass_over()
    assert found.segments == len([*broker.data.rglob("*.log")])
    assert sum(slept) == pytest.approx(found.size_bytes / 1_000)
    assert found.corrupt_ranges == 0


async def test_the_scrub_comes_by_itself_unless_it_is_turned_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def passes() -> int:
        return sum("scrubbed" in str(r.msg) for r in caplog.records)

    with caplog.at_level(logging.INFO, "millrace"):
        async with Broker(scrub_interval_ms=1, scrub_bytes_per_second=1 << 30):
            await until(lambda: passes() > 2)
        count = passes()
        async with Broker(scrub_interval_ms=1, scrub_bytes_per_second=0) as broker:
            names = [task.get_name() for task in broker.node.broker._background_tasks]
            assert "housekeeping" in names
            assert "scrub" not in names
    assert passes() == count


async def test_a_broker_that_stops_in_the_midst_of_a_scrub_leaves_no_file_open(
    broker: Broker, wire: Wire
) -> None:
    await fill(wire)
    for turns in range(12):
        other = asyncio.ensure_future(broker.node.broker.scrub.pass_over())
        for _ in range(turns):
            await asyncio.sleep(0)
        other.cancel()
        await asyncio.wait([other])
    await broker.stop()
    assert not [name for name in open_files() if str(broker.data) in name]
