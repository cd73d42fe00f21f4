"""The Wireshark script runs, and agrees with our own dissector on every example.

Runs the script in a Lua interpreter over a stand-in for the part of Wireshark's API it uses.
"""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest

from millrace_protocol.dissect import Span, dissect_frames
from millrace_protocol.spec.__main__ import main
from millrace_protocol.spec.examples import EXAMPLES
from millrace_protocol.spec.lua import lua_script

WIRESHARK = r"""
shown = {}
local Tree = {}
Tree.__index = Tree
function Tree:add(range, label, more)
  if more == nil then table.insert(shown, label) end
  return self
end
local Range = {}
Range.__index = Range
function Range:int() return (string.unpack(">i" .. #self.data, self.data)) end
function Range:uint() return (string.unpack(">I" .. #self.data, self.data)) end
Range.int64 = Range.int
function Range:float() return (string.unpack(">d", self.data)) end
function Range:string() return self.data end
function Range:bytes()
  return (self.data:gsub(".", function(c) return string.format("%02x", c:byte()) end))
end
local Tvb = {}
Tvb.__index = Tvb
function Tvb:len() return #self.data end
Tvb.__call = function(self, position, size)
  if position == nil then return setmetatable({data = self.data}, Range) end
  assert(position >= 0 and size > 0 and position + size <= #self.data, "out of bounds")
  return setmetatable({data = self.data:sub(position + 1, position + size)}, Range)
end
local registered
function Proto(name)
  registered = {register_heuristic = function(self, _, f) self.heuristic = f end}
  return registered
end
DissectorTable = {get = function() return {add_for_decode_as = function() end} end}
function dissect_tcp_pdus(tvb, root, _, length, dissect)
  assert(length(tvb, nil, 0) >= 0)
  dissect(tvb, {cols = {}}, root)
end
function run(data)
  shown = {}
  local taken = registered.heuristic(setmetatable({data = data}, Tvb), {cols = {}}, Tree)
  return taken, table.concat(shown, "\0")
end
"""


@pytest.fixture(scope="module")
def wireshark() -> Any:
    lua54 = pytest.importorskip("lupa.lua54")
    runtime = lua54.LuaRuntime(encoding=None)
    runtime.execute(WIRESHARK.encode())
    runtime.execute(lua_script().encode())
    return runtime.globals()


def lines(wireshark: Any, frame: bytes) -> list[str]:
    taken, shown = wireshark[b"run"](frame)
    assert taken
    return [line.decode() for line in shown.split(b"\0")]


NOT_SHOWN = re.compile(r"records\[\d+\]\.(records|payload)|(^|\.)records\.size$|client_id\.size$")


def expected(span: Span) -> list[str]:
    """Our own leaves in the words of the script, without what it does not show."""
    return [
        in_script(leaf)
        for leaf in span.leaves()
        if not NOT_SHOWN.search(leaf.name) and leaf.type != "bytes"
    ]


def in_script(leaf: Span) -> str:
    name, value = leaf.name, leaf.value
    if name.endswith(".count"):
        return f"{name.removesuffix('.count')}: {value} elements"
    match value:
        case None:
            return f"{name}: null"
        case bool():
            return f"{name}: {int(value)}"
        case bytes():
            return f"{name}: {value.decode()}"
        case uuid.UUID():
            return f"{name}: {value.hex}"
    return f"{name}: {value}"


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_script_agrees_with_our_dissector(wireshark: Any, name: str) -> None:
    (span,) = dissect_frames(EXAMPLES[name])
    shown = [
        re.sub(r" \([A-Z_]+\)$", "", line)
        for line in lines(wireshark, EXAMPLES[name])
        if not line.endswith(" bytes")
    ]
    assert shown == expected(span)


def test_a_broken_frame_is_shown_up_to_its_byte(wireshark: Any) -> None:
    frame = EXAMPLES["fetch-request"]
    shown = lines(wireshark, frame[:-5])
    assert shown[-1] == (
        f"broken at byte {len(frame) - 6}: partitions[0].max_bytes does not fit into the frame"
    )


def test_other_packets_are_left_to_other_dissectors(wireshark: Any) -> None:
    taken, _ = wireshark[b"run"](b"GET / HTTP/1.1\r\n\r\n")
    assert not taken


def test_the_script_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--lua"]) == 0
    assert capsys.readouterr().out.startswith("-- The millrace protocol for Wireshark.")
