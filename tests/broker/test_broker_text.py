"""The text dialect, as a user of netcat sees it (W-8)."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from millrace_protocol.records import Codec, decompress_payload, encode_batch, seal
from millrace_server.dialects.text.commands import COMMANDS
from millrace_server.limits import Limits
from millrace_server.services import batch_lookups
from millrace_server.testing import Broker
from tests.broker.wire import Text, batch, connect, connect_text, reset, until, values_of
from tests.hang_timeout import HANG_TIMEOUT_S


@pytest.fixture
async def text(broker: Broker) -> AsyncIterator[Text]:
    async with connect_text(broker.port) as connected:
        yield connected


def watchers(broker: Broker) -> int:
    return sum(len(partition.watchers) for partition in broker.node.broker.partitions)


async def test_help_lists_every_command(text: Text) -> None:
    """W-8.1, W-8.2"""
    lines = await text.ask("HELP")
    assert lines[-1] == "OK"
    named = {line.split()[0] for line in lines[:-1]}
    assert named == {*COMMANDS, "AUTH", "TAIL", "QUIT"}


@pytest.mark.parametrize("command", ["topics", "Topics", "TOPICS "])
async def test_a_command_may_be_typed_in_either_case(text: Text, command: str) -> None:
    """W-8.1"""
    assert await text.ask(command) == ["OK 0 topics"]


@pytest.mark.parametrize("ending", ["", "\r"])
async def test_an_empty_first_line_is_skipped(text: Text, ending: str) -> None:
    """W-1.1"""
    assert await text.ask(f"{ending}\nTOPICS") == ["OK 0 topics"]


async def test_a_session_from_create_to_offsets(text: Text) -> None:
    """W-8.2"""
    assert await text.ask("CREATE clicks 2") == ["OK topic clicks with 2 partitions"]
    assert await text.ask("TOPICS") == ["topic clicks partitions 2", "OK 1 topic"]
    assert await text.ask("PRODUCE clicks 0 hello  world ") == ["OK clicks-0 offset 0"]
    assert await text.ask("PRODUCEKEY clicks 0 ada two words") == ["OK clicks-0 offset 1"]
    assert await text.ask("PRODUCE clicks 1 other") == ["OK clicks-1 offset 0"]
    first, second, last = await text.ask("FETCH clicks 0 0")
    assert first.startswith("offset 0 time 20")
    assert first.endswith("Z key (null) value hello  world ")
    assert second.endswith(" key ada value two words")
    assert last == "OK 2 records, next offset 2, high watermark 2"
    assert await text.ask("FETCH clicks 0 2") == ["OK 0 records, next offset 2, high watermark 2"]
    one = await text.ask("FETCH clicks 0 0 1")
    assert one[-1] == "OK 1 record, next offset 1, high watermark 2"
    assert await text.ask("OFFSETS clicks") == [
        "partition 0 start 0 high watermark 2",
        "partition 1 start 0 high watermark 1",
        "OK",
    ]
    described = await text.ask("DESCRIBE clicks")
    assert described[0].startswith("topic clicks id ")
    assert "config durability=fsync (default)" in described
    assert described[-2].startswith("partition 1 leader 0 start 0 high watermark 1 end 1 bytes ")


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("NONSENSE", "INVALID_REQUEST There is no command 'NONSENSE'"),
        ("X" * 1_000, "INVALID_REQUEST There is no command"),
        ("FETCH", "INVALID_REQUEST Type FETCH TOPIC PARTITION OFFSET"),
        ("FETCH t 0", "INVALID_REQUEST Type FETCH"),
        ("FETCH t 0 0 1 1", "INVALID_REQUEST Type FETCH"),
        ("FETCH t zero 0", "INVALID_REQUEST PARTITION is 'zero'"),
        ("FETCH t 0 1.5", "INVALID_REQUEST OFFSET is '1.5'"),
        ("FETCH t 0 0 0", "INVALID_REQUEST COUNT is 0; it is 1 to 1000"),
        ("FETCH t 0 0 1001", "INVALID_REQUEST COUNT is 1001"),
        ("FETCH t 0 " + "9" * 5_000, "INVALID_REQUEST OFFSET"),
        ("FETCH t 0 1", "OFFSET_OUT_OF_RANGE"),
        ("FETCH t 0 -1", "OFFSET_OUT_OF_RANGE"),
        ("FETCH t 9 0", "UNKNOWN_TOPIC_OR_PARTITION Topic 't' has no partition 9"),
        ("FETCH nope 0 0", "UNKNOWN_TOPIC_OR_PARTITION There is no topic 'nope'"),
        ("PRODUCE", "INVALID_REQUEST Type PRODUCE"),
        ("PRODUCE t", "INVALID_REQUEST Type PRODUCE"),
        ("PRODUCE  t 0 x", "INVALID_REQUEST Type PRODUCE"),
        ("PRODUCE nope 0 x", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("PRODUCE t x y", "INVALID_REQUEST PARTITION is 'x'"),
        ("PRODUCE __cluster_metadata 0 x", "INVALID_TOPIC_EXCEPTION"),
        ("PRODUCEKEY t 0", "INVALID_REQUEST Type PRODUCEKEY"),
        ("CREATE", "INVALID_REQUEST Type CREATE"),
        ("CREATE t", "TOPIC_ALREADY_EXISTS"),
        ("CREATE a/b", "INVALID_TOPIC_EXCEPTION"),
        ("CREATE u 0", "INVALID_PARTITIONS"),
        ("CREATE u many", "INVALID_REQUEST PARTITIONS is 'many'"),
        ("DESCRIBE nope", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("OFFSETS nope", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("TOPICS all", "INVALID_REQUEST Type TOPICS"),
        ("TAIL", "INVALID_REQUEST Type TAIL TOPIC PARTITION"),
        ("TAIL t", "INVALID_REQUEST Type TAIL"),
        ("TAIL t x", "INVALID_REQUEST PARTITION is 'x'"),
        ("TAIL nope 0", "UNKNOWN_TOPIC_OR_PARTITION"),
        (
            b"FETCH \xff\xfe 0 0",
            r"UNKNOWN_TOPIC_OR_PARTITION There is no topic '\xff\xfe' here",
        ),
        (b"\x46\xff", r"INVALID_REQUEST There is no command 'F\xff'"),
        (rb"FETCH \udcff 0 0", r"UNKNOWN_TOPIC_OR_PARTITION There is no topic '\\udcff' here"),
    ],
)
async def test_a_line_that_cannot_be_answered_gets_err_and_the_next_is_answered(
    text: Text, line: str | bytes, error: str
) -> None:
    """W-8.1"""
    await text.ask("CREATE t")
    (answer,) = await text.ask(line)
    assert answer.startswith(f"ERR {error}")
    assert len(answer) < 1_200
    assert (await text.ask("TOPICS"))[-1] == "OK 1 topic"


async def test_a_fetch_line_behind_a_produce_line_sees_its_record(text: Text) -> None:
    """W-2.6 holds for lines too: a client need not wait for a response to send the next line."""
    text.type("CREATE t", "PRODUCE t 0 a", "PRODUCE t 0 b", "FETCH t 0 0", "OFFSETS t", "TOPICS")
    answers = [await text.answer() for _ in range(6)]
    assert [answer[-1] for answer in answers] == [
        "OK topic t with 1 partition",
        "OK t-0 offset 0",
        "OK t-0 offset 1",
        "OK 2 records, next offset 2, high watermark 2",
        "OK",
        "OK 1 topic",
    ]


async def test_a_thousand_lines_at_once_are_answered_in_order(text: Text) -> None:
    await text.ask("CREATE t")
    text.type(*(f"PRODUCE t 0 {n}" for n in range(1_000)))
    for n in range(1_000):
        assert await text.answer() == [f"OK t-0 offset {n}"]


async def test_carriage_returns_and_empty_lines_are_no_matter(text: Text) -> None:
    """W-8.1"""
    text.type("TOPICS\r", "", "\r", "CREATE t\r", "", "PRODUCE t 0 v\r", "FETCH t 0 0\r")
    assert await text.answer() == ["OK 0 topics"]
    assert await text.answer() == ["OK topic t with 1 partition"]
    assert await text.answer() == ["OK t-0 offset 0"]
    assert (await text.answer())[0].endswith("value v")


async def test_bytes_that_are_no_utf8_are_stored_and_shown_escaped(
    broker: Broker, text: Text
) -> None:
    await text.ask("CREATE t")
    await text.ask(b"PRODUCE t 0 \xff\x00caf\xc3\xa9 \\ \x1b[31m")
    shown = (await text.ask("FETCH t 0 0"))[0]
    assert shown.endswith("value \\xff\\x00caf\xe9 \\\\ \\x1b[31m")
    async with connect(broker.port) as wire:
        assert values_of(await wire.fetch("t", 0)) == [b"\xff\x00caf\xc3\xa9 \\ \x1b[31m"]


async def test_headers_nulls_and_long_values_are_shown_on_one_line(
    broker: Broker, text: Text
) -> None:
    """W-8.2: nothing in a record can forge a line."""
    made = encode_batch(
        [None, b"x" * 20_000],
        keys=[b"k\n", None],
        headers=[[("source", b"web"), ("none\nOK", None)], []],
        timestamps_ms=[0, 2**62],
    )
    async with connect(broker.port) as wire:
        await wire.create("t", configs={"message.timestamp.after.max.ms": str(2**63 - 1)})
        await wire.produce("t", bytes(made))
    first, second, _ = await text.ask("FETCH t 0 0")
    assert first == (
        "offset 0 time 1970-01-01T00:00:00.000Z key k\\n header source=web header none\\nOK=(null) "
        "value (null)"
    )
    assert second.startswith(f"offset 1 time {2**62} ")
    assert second.endswith("x... (20000 bytes)")


async def test_an_unreadable_batch_is_an_error_for_its_reader(broker: Broker, text: Text) -> None:
    await text.ask("CREATE t")
    text.type("TAIL t 0")
    await until(lambda: watchers(broker) == 1)
    lie = bytearray(batch(b"value"))
    lie[21:23] = b"\x00\x01"
    lie[61:] = b"\xff" * (len(lie) - 61)
    seal(lie)
    async with connect(broker.port) as wire:
        await wire.produce("t", bytes(lie))
    assert (await text.answer())[-1].startswith("ERR INVALID_RECORD")
    assert (await text.ask("FETCH t 0 0"))[-1].startswith("ERR INVALID_RECORD")
    assert watchers(broker) == 0


async def test_tail_streams_records_as_they_come(broker: Broker, text: Text) -> None:
    await text.ask("CREATE t")
    await text.ask("PRODUCE t 0 before")
    text.type("TAIL t 0")
    await until(lambda: watchers(broker) == 1)
    async with connect_text(broker.port) as other:
        for n in range(3):
            await other.ask(f"PRODUCE t 0 {n}")
            assert (await text.line()).endswith(f"value {n}")
    async with connect(broker.port) as wire:
        await wire.produce("t", batch(*(b"many %d" % n for n in range(1_000))))
    for n in range(1_000):
        assert (await text.line()).endswith(f"value many {n}")


async def test_tail_may_be_typed_behind_create(broker: Broker, text: Text) -> None:
    text.type("CREATE t", "TAIL t 0")
    assert await text.line() == "OK topic t with 1 partition"
    await until(lambda: watchers(broker) == 1)
    async with connect_text(broker.port) as other:
        await other.ask("PRODUCE t 0 seen")
    assert (await text.line()).endswith("value seen")


async def test_tail_ends_when_its_topic_is_deleted_and_another_may_begin(
    broker: Broker, text: Text
) -> None:
    await text.ask("CREATE t")
    await text.ask("CREATE u")
    text.type("TAIL t 0")
    await until(lambda: watchers(broker) == 1)
    async with connect(broker.port) as wire:
        await wire.delete("t")
    assert (await text.line()).startswith("ERR UNKNOWN_TOPIC_OR_PARTITION")
    text.type("TAIL u 0")
    await until(lambda: watchers(broker) == 1)
    async with connect_text(broker.port) as other:
        await other.ask("PRODUCE u 0 seen")
    assert (await text.line()).endswith("value seen")


@pytest.mark.parametrize("how", ["end", "reset"])
async def test_tail_of_a_peer_that_is_gone_leaves_no_watcher(broker: Broker, how: str) -> None:
    async with connect_text(broker.port) as text:
        await text.ask("CREATE t")
        text.type("TAIL t 0")
        await until(lambda: watchers(broker) == 1)
        if how == "reset":
            reset(text.writer)
    async with connect_text(broker.port) as other:
        await until(lambda: how == "end" or watchers(broker) == 0)
        # Who only ended its input may still listen; the broker learns more when it writes.
        async with asyncio.timeout(HANG_TIMEOUT_S):
            while watchers(broker):
                await other.ask("PRODUCE t 0 x")


async def test_a_tail_that_is_cut_within_a_chunk_leaves_no_connection(
    broker: Broker, text: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_decompressing, may_return = threading.Event(), threading.Event()

    def decompress(*arguments: Any, **options: Any) -> bytes:
        is_decompressing.set()
        may_return.wait()
        return decompress_payload(*arguments, **options)

    monkeypatch.setattr(batch_lookups, "decompress_payload", decompress)
    await text.ask("CREATE t")
    async with connect_text(broker.port) as cut:
        cut.type("TAIL t 0")
        await until(lambda: watchers(broker) == 1)
        async with connect(broker.port) as wire:
            await wire.produce("t", batch(b"v" * 500, codec=Codec.ZSTD))
        await until(is_decompressing.is_set)
        reset(cut.writer)
    try:
        await until(lambda: len(broker.node.server.connections) == 1)
    finally:
        may_return.set()
    assert watchers(broker) == 0
    assert (await text.ask("FETCH t 0 0"))[-1].startswith("OK 1 record")
    text.writer.close()
    await broker.stop()


async def test_a_stopping_broker_ends_tail(broker: Broker, text: Text) -> None:
    await text.ask("CREATE t")
    text.type("TAIL t 0")
    await until(lambda: watchers(broker) == 1)
    stopping = asyncio.ensure_future(broker.stop())
    assert await text.rest() == ""
    text.writer.close()
    await stopping


async def test_quit_answers_the_lines_before_it(text: Text) -> None:
    text.type("CREATE t", "PRODUCE t 0 v", "QUIT", "TOPICS")
    assert (await text.rest()).splitlines() == [
        "OK topic t with 1 partition",
        "OK t-0 offset 0",
        "OK bye",
    ]


async def test_a_client_that_ends_its_input_gets_every_response(text: Text) -> None:
    """W-8.1: `printf ... | nc`, and without a line feed behind the last line."""
    text.type("CREATE t", "PRODUCE t 0 v")
    text.writer.write(b"FETCH t 0 0")
    text.writer.write_eof()
    lines = (await text.rest()).splitlines()
    assert lines[:2] == ["OK topic t with 1 partition", "OK t-0 offset 0"]
    assert lines[2].endswith("value v")
    assert lines[3] == "OK 1 record, next offset 1, high watermark 1"


@pytest.mark.skipif(shutil.which("nc") is None, reason="there is no nc here")
async def test_netcat_gets_its_answer(broker: Broker) -> None:
    process = await asyncio.create_subprocess_exec(
        "nc",
        "-N",
        "127.0.0.1",
        str(broker.port),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(HANG_TIMEOUT_S):
        printed, _ = await process.communicate(b"CREATE t\nPRODUCE t 0 v\n")
    assert printed == b"OK topic t with 1 partition\nOK t-0 offset 0\n"


@pytest.mark.parametrize("size", [65_537, 200_000])
async def test_a_line_that_is_too_long_is_refused_and_closes(text: Text, size: int) -> None:
    """W-8.1"""
    text.writer.write(b"PRODUCE t 0 " + b"x" * (size - 12))
    rest = await text.rest()
    assert rest.startswith("ERR INVALID_REQUEST The line is longer than 65536 bytes")
    assert rest.count("\n") == 1


@pytest.mark.parametrize("typed", [b" TOPICS\n", b"\tTOPICS\n", b"1\nTOPICS\n", b"{}\nTOPICS\n"])
async def test_whatever_is_typed_first_is_answered_in_text(broker: Broker, typed: bytes) -> None:
    """W-1.1, W-8.1"""
    async with connect_text(broker.port) as text:
        text.type(typed)
        for _ in range(typed.count(b"\n") - 1):
            (refusal,) = await text.answer()
            assert refusal.startswith("ERR INVALID_REQUEST There is no command ")
        assert await text.answer() == ["OK 0 topics"]


async def test_a_line_of_the_limit_is_taken(text: Text) -> None:
    """W-8.1"""
    await text.ask("CREATE t")
    text.type(b"PRODUCE t 0 " + b"x" * (65_536 - 12))
    assert await text.answer() == ["OK t-0 offset 0"]


async def test_a_broker_may_have_the_text_dialect_switched_off() -> None:
    """W-8"""
    limits = Limits(linger_ms=10)
    async with Broker(text_dialect=False, limits=limits) as broker:
        async with connect_text(broker.port) as text:
            for line in ("TOPICS", "CREATE t", "TAIL t 0", "NONSENSE"):
                (answer,) = await text.ask(line)
                assert answer.startswith("ERR INVALID_REQUEST The text dialect is switched off")
        async with connect(broker.port) as wire:
            assert await wire.topics() == []


async def test_one_port_speaks_both_dialects(broker: Broker, text: Text) -> None:
    """W-1.1"""
    async with connect(broker.port) as wire:
        await wire.create("t")
        await wire.produce("t", batch(b"from frames"))
        assert (await text.ask("FETCH t 0 0"))[0].endswith("value from frames")
        await text.ask("PRODUCE t 0 from lines")
        assert values_of(await wire.fetch("t", 1)) == [b"from lines"]
