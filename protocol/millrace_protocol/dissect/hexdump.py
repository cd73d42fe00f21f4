"""Hex as people paste it, back to bytes: `xxd`, `hexdump -C`, `tcpdump -X`, or just digits.

Owns the recognition of those four. Knows nothing of what the bytes mean.
"""

from __future__ import annotations

import re

_XXD = re.compile(r"^\s*[0-9a-fA-F]{6,16}:\s(?P<hex>.*)$")
_TCPDUMP = re.compile(r"^\s*0x(?P<at>[0-9a-fA-F]{4,}):\s+(?P<hex>.*)$")
_HEXDUMP = re.compile(r"^(?P<at>[0-9a-fA-F]{7,16})(?:\s+(?P<hex>[^|]*))?(?:\|.*\|?)?$")
_GROUPS = re.compile(r"^(?:[0-9a-fA-F]{2,8} ?)*")
_REPEATED_BYTES_MAX = 1 << 26
_PLAIN_NOISE = re.compile(r"0x|\\x|[\s,:;{}\[\]]")


class HexError(ValueError):
    """Text that is not hex; `line` is the line at fault, from 1."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(f"line {line}: {reason}")
        self.reason = reason
        self.line = line


def read_hex(text: str) -> list[bytes]:
    """The pieces of bytes in `text`: one, or one per packet of a `tcpdump -X`.

    Raises `HexError` for text that is none of the four.
    """
    lines = [(n, line.rstrip()) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    if any(_TCPDUMP.match(line) for _, line in lines):
        return _read_tcpdump(lines)
    if lines and all(_XXD.match(line) for _, line in lines):
        return [b"".join(_groups(_XXD, line, number) for number, line in lines)]
    if lines and _is_hexdump(lines[0][1]):
        return [_read_hexdump(lines)]
    return [b"".join(_digits(_PLAIN_NOISE.sub("", line), number) for number, line in lines)]


def _is_hexdump(line: str) -> bool:
    match = _HEXDUMP.match(line)
    return match is not None and "|" in line and int(match["at"], 16) == 0


def _read_tcpdump(lines: list[tuple[int, str]]) -> list[bytes]:
    """Packets begin where the position goes back to 0; other lines are tcpdump's summaries."""
    packets: list[bytes] = []
    for number, line in lines:
        match = _TCPDUMP.match(line)
        if match is None:
            continue
        if int(match["at"], 16) == 0 or not packets:
            packets.append(b"")
        packets[-1] += _groups(_TCPDUMP, line, number)
    return packets


def _read_hexdump(lines: list[tuple[int, str]]) -> bytes:
    """`*` stands for repetitions of the row before it, up to the next row's position."""
    data = bytearray()
    row = b""
    repeats = False
    for number, line in lines:
        if line.strip() == "*":
            repeats = True
            continue
        match = _HEXDUMP.match(line)
        if match is None:
            raise HexError("neither a position nor a `*`", number)
        gap = int(match["at"], 16) - len(data)
        if gap and not (repeats and row and 0 < gap <= _REPEATED_BYTES_MAX):
            raise HexError(f"position {match['at']} is not where the row before ends", number)
        data += (row * (gap // len(row) + 1))[:gap] if gap else b""
        row = _digits((match["hex"] or "").replace(" ", ""), number)
        data += row
        repeats = False
    return bytes(data)


def _groups(pattern: re.Pattern[str], line: str, number: int) -> bytes:
    """The groups of digits of a row; two spaces end them, and the text column follows."""
    match = pattern.match(line)
    digits = match["hex"].split("  ")[0] if match else ""
    found = _GROUPS.match(digits)
    if found is None or found.end() != len(digits):
        raise HexError(f"{digits!r} is not hex", number)
    return _digits(digits.replace(" ", ""), number)


def _digits(digits: str, number: int) -> bytes:
    try:
        return bytes.fromhex(digits)
    except ValueError:
        if len(digits) % 2 and re.fullmatch("[0-9a-fA-F]+", digits):
            raise HexError("an odd number of digits", number) from None
        raise HexError(f"{digits[:40]!r} is not hex", number) from None
