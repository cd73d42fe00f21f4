"""`millrace dissect`: bytes of every kind, from files and pipes."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millrace_cli.colours import paint
from millrace_cli.exits import Exit
from millrace_protocol import encode, request_frame
from millrace_protocol.dissect import dissect_frames, render
from millrace_protocol.messages.hello import HelloRequest
from millrace_protocol.records import Codec, encode_batch

if TYPE_CHECKING:
    from tests.cli.conftest import Millrace, Serve

HELLO = request_frame(
    api=18,
    version=0,
    correlation_id=7,
    client_id=b"me",
    body=encode(HelloRequest("tool", "1.0"), 0),
)
HELLO_LINES = list(render(dissect_frames(HELLO)))


def xxd(data: bytes) -> bytes:
    rows = range(0, len(data), 16)
    return b"".join(b"%08x: %s\n" % (n, data[n : n + 16].hex(" ", 2).encode()) for n in rows)


@pytest.mark.parametrize("text", [HELLO.hex().encode(), xxd(HELLO), HELLO.hex(" ").encode()])
def test_hex_from_a_pipe_is_annotated(millrace: Millrace, text: bytes) -> None:
    ended = millrace.process("dissect", stdin=text)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout.decode().splitlines() == HELLO_LINES


def test_json_has_an_object_for_each_frame_with_its_fields(millrace: Millrace) -> None:
    ended = millrace.process("dissect", "--json", stdin=HELLO + HELLO[:-1])
    assert ended.returncode == Exit.REFUSED
    whole, cut = map(json.loads, ended.stdout.splitlines())
    values = {field["name"]: field["value"] for field in whole["children"]}
    assert (values["magic"], values["api"], values["software"]) == ("4d52", 18, "tool")
    assert (whole["start"], whole["end"], whole["fault"]) == (0, len(HELLO), None)
    assert cut["start"] == len(HELLO)
    assert "string takes 3 bytes, 2 follow" in json.dumps(cut)


def test_json_of_compressed_records_tells_where_positions_count_anew(
    millrace: Millrace, tmp_path: Path
) -> None:
    batch = encode_batch([b"v" * 100] * 20, timestamps_ms=0, codec=Codec.GZIP)
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(batch)
    ended = millrace("dissect", "-J", str(segment))
    (found,) = map(json.loads, ended.stdout.splitlines())
    (inner,) = (each for each in found["children"] if each["decompressed"])
    assert max(child["end"] for child in inner["children"]) > len(batch)


def test_raw_bytes_from_a_pipe_are_a_stream(millrace: Millrace) -> None:
    ended = millrace.process("dissect", stdin=HELLO + b"TOPICS\n")
    assert ended.returncode == 0
    assert ended.stdout.decode().splitlines()[:-1] == HELLO_LINES
    assert ended.stdout.endswith(b"line = 'TOPICS'  text\n")


def test_malformed_frame_is_shown_up_to_the_byte_and_is_exit_1(
    millrace: Millrace, tmp_path: Path
) -> None:
    file = tmp_path / "cut"
    file.write_bytes(HELLO[:-1])
    ended = millrace("dissect", str(file))
    assert ended.exit_code == Exit.REFUSED
    assert "software = 'tool'" in ended.stdout
    assert "<-- string takes 3 bytes, 2 follow" in ended.stdout.splitlines()[-1]


def test_segment_from_a_pipe_is_known_by_its_content(millrace: Millrace) -> None:
    values = enumerate([b"first", b"second"])
    batches = b"".join(encode_batch([value], timestamps_ms=time) for time, value in values)
    for stdin in (batches, xxd(batches)):
        ended = millrace.process("dissect", stdin=stdin)
        assert (ended.returncode, ended.stderr) == (0, b"")
        assert b"batch[1].records[0].value = 'second'" in ended.stdout


def test_output_that_cannot_be_written_is_one_line_and_exit_5(millrace: Millrace) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    with millrace.running("dissect", "--as", "hex", stdin=subprocess.PIPE, stdout=full) as process:
        os.close(full)
        _, stderr = process.communicate(HELLO.hex().encode())
    assert process.returncode == Exit.DISK
    assert stderr == b"millrace: [Errno 28] No space left on device\n"


def test_text_that_is_not_hex_is_exit_65(millrace: Millrace, tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("00 zz\n")
    ended = millrace("dissect", "--as", "hex", str(file))
    assert ended.exit_code == Exit.INPUT
    assert ended.stderr.startswith(f"millrace: {file}: line 1: ")
    ended = millrace("dissect", "--as", "pcap", str(file))
    assert ended.exit_code == Exit.INPUT


def test_capture_shows_the_direction_of_each_frame(millrace: Millrace, tmp_path: Path) -> None:
    file = tmp_path / "capture.pcap"
    file.write_bytes(_pcap(HELLO, source_port=40000, destination_port=9092))
    ended = millrace("dissect", str(file))
    assert ended.exit_code == 0
    assert "127.0.0.1:40000 > 127.0.0.1:9092 Hello request v0 #7" in ended.stdout.splitlines()[0]


def test_files_of_a_partition_are_known_by_their_names(
    serve: Serve, millrace: Millrace, tmp_path: Path
) -> None:
    with serve() as serving:
        millrace.servers = serving.servers
        created = millrace("topic", "create", "t", "-c", "index.interval.bytes=1")
        assert created.exit_code == 0, created.stderr
        for value in (b"first\n", b"second\n", b"third\n"):
            assert millrace.process("produce", "t", stdin=value).returncode == 0
        assert serving.stop()[0] == 0
    directory = tmp_path / "data" / "t-0"
    segment = millrace("dissect", str(directory / f"{0:020}.log"))
    assert segment.exit_code == 0
    assert ".value = 'second'" in segment.stdout
    assert "offset 2" in segment.stdout
    for ending in ("index", "timeindex"):
        shown = millrace("dissect", str(directory / f"{0:020}.{ending}"))
        assert shown.exit_code == 0, shown.output
        assert "entry[0].relative_offset" in shown.stdout
        forced = millrace.process(
            *("dissect", "--as", ending), stdin=(directory / f"{0:020}.{ending}").read_bytes()
        )
        assert b"entry[0].relative_offset" in forced.stdout


def test_colours_add_nothing_but_colour() -> None:
    for line, painted in zip(HELLO_LINES, paint(HELLO_LINES), strict=True):
        assert "\x1b[" in painted
        plain = painted
        for code in ("\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[36m", "\x1b[1;31m"):
            plain = plain.replace(code, "")
        assert plain == line


def test_fault_is_red() -> None:
    *_, last = paint(render(dissect_frames(HELLO[:-1])))
    assert "\x1b[1;31m  <-- string takes 3 bytes" in last


def _pcap(payload: bytes, *, source_port: int, destination_port: int) -> bytes:
    """A capture of one TCP segment, link type raw IP."""
    loopback = bytes([127, 0, 0, 1])
    tcp = struct.pack(">HHIIBBHHH", source_port, destination_port, 1, 1, 5 << 4, 0x18, 512, 0, 0)
    total = 20 + len(tcp) + len(payload)
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, total, 1, 0, 64, 6, 0, loopback, loopback)
    packet = ip + tcp + payload
    header = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101)
    return header + struct.pack("<IIII", 1_700_000_000, 0, len(packet), len(packet)) + packet
