"""Hex in the forms that tools print is read back to the same bytes."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_protocol.dissect import HexError, dissect_hex, read_hex
from millrace_protocol.spec.examples import EXAMPLES

REQUEST = EXAMPLES["fetch-request"]

XXD = """\
00000000: 0000 003c 4d52 0001 0000 0000 0007 0003  ...<MR..........
00000010: 636c 69                                  cli
"""
HEXDUMP = """\
00000000  41 41 41 41 41 41 41 41  41 41 41 41 41 41 41 41  |AAAAAAAAAAAAAAAA|
*
00000030  00 00 00 3c 4d 52 00 01                           |...<MR..|
00000038
"""
TCPDUMP = """\
12:00:00.000000 IP 10.0.0.1.5000 > 10.0.0.2.9092: Flags [P.], length 4
\t0x0000:  4500 002c 0000 4000 4006 0000 0a00 0001  E..,..@.@.......
\t0x0010:  0a00 0002 1388 2384 0000 0001 0000 0000  ......#.........
\t0x0020:  5018 0000 0000 0000 4845 4c50            P.......HELP
12:00:00.100000 IP 10.0.0.1.5000 > 10.0.0.2.9092: Flags [P.], length 1
\t0x0000:  4500 0029 0000 4000 4006 0000 0a00 0001  E..)..@.@.......
\t0x0010:  0a00 0002 1388 2384 0000 0005 0000 0000  ......#.........
\t0x0020:  5018 0000 0000 0000 0a                   P........
"""


def test_xxd_is_read() -> None:
    assert read_hex(XXD) == [bytes.fromhex("0000003c4d520001000000000007 0003 636c69")]


def test_hexdump_is_read_with_its_repeated_rows() -> None:
    assert read_hex(HEXDUMP) == [b"A" * 48 + bytes.fromhex("0000003c4d520001")]


def test_packets_of_tcpdump_are_put_together_to_lines_and_frames() -> None:
    (span,) = dissect_hex(TCPDUMP)
    assert span.name == "10.0.0.1:5000 > 10.0.0.2:9092 line"
    assert span.value == "HELP"


@pytest.mark.parametrize(
    "text",
    [
        REQUEST.hex(),
        REQUEST.hex(" "),
        REQUEST.hex("\n", 8).upper(),
        ", ".join(f"0x{byte:02x}" for byte in REQUEST),
        "".join(f"\\x{byte:02x}" for byte in REQUEST),
        ":".join(f"{byte:02x}" for byte in REQUEST),
    ],
    ids=["digits", "spaces", "rows", "0x", "\\x", "colons"],
)
def test_plain_digits_are_read_however_they_are_set_apart(text: str) -> None:
    assert read_hex(text) == [REQUEST]


@pytest.mark.parametrize("command", [["xxd"], ["xxd", "-p"], ["xxd", "-g1"], ["hexdump", "-C"]])
@pytest.mark.parametrize("name", ["fetch-response", "describe-configs-response"])
def test_the_output_of_hex_tools_is_read_back(command: list[str], name: str) -> None:
    data = EXAMPLES[name] + bytes(100)
    try:
        printed = subprocess.run(command, input=data, capture_output=True, check=True).stdout
    except FileNotFoundError:
        pytest.skip(f"{command[0]} is not installed")
    assert read_hex(printed.decode("ascii")) == [data]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("00 01\nzz 02", "line 2: 'zz02' is not hex"),
        ("00 1", "line 1: an odd number of digits"),
        ("00000000  41 |A|\n00000030  42 |B|", "line 2: position 00000030 is not where"),
    ],
)
def test_text_that_is_no_hex_is_refused_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(HexError) as caught:
        read_hex(text)
    assert str(caught.value).startswith(reason)


@given(st.text(max_size=200) | st.from_regex(r"(0[0-9a-f]{7}: ?[0-9a-f |*]{0,30}\n){1,3}"))
def test_any_text_at_all_is_bytes_or_a_hex_error(text: str) -> None:
    try:
        pieces = read_hex(text)
    except HexError:
        return
    assert all(isinstance(piece, bytes) for piece in pieces)
