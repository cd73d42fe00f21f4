"""A dissector for Wireshark, made from the declarations.

    python -m millrace_protocol.spec --lua > ~/.local/lib/wireshark/plugins/millrace.lua

Owns the script's text: tables made from `messages/` and `records`, and a walker over them that
is the same for all messages. Shows frames, bodies and batch headers; not single records.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace_protocol.api import APIS
from millrace_protocol.errors import ErrorCode
from millrace_protocol.framing import HEADER_SIZE, RESPONSE_BIT
from millrace_protocol.messages.error_response import ErrorResponse
from millrace_protocol.primitives import ArrayOf, WireType
from millrace_protocol.records import BATCH_HEADER
from millrace_protocol.schema import Message, StructOf, codec


def lua_script() -> str:
    """The whole script."""
    return "\n".join([_HEAD, *_structs(), *_apis(), *_errors(), *_batch_header(), _WALKER])


def _structs() -> Iterator[str]:
    yield "local structs = {"
    done: set[str] = set()
    for cls, version in _messages():
        yield from _struct(codec(cls, version), version, done)
    yield "}"


def _messages() -> Iterator[tuple[type[Message], int]]:
    for api in APIS.values():
        for version in range(api.min_version, api.max_version + 1):
            yield api.request, version
            yield api.response, version
    yield ErrorResponse, 0


def _struct(type_: StructOf, version: int, done: set[str]) -> Iterator[str]:
    name = _name(type_, version)
    if name in done:
        return
    done.add(name)
    fields = ", ".join(
        f'{{"{field}", {_type(field_type, version)}}}'
        for field, field_type in zip(type_.names, type_.types, strict=True)
    )
    yield f'  ["{name}"] = {{{fields}}},'
    for field_type in type_.types:
        if isinstance(field_type, ArrayOf) and isinstance(field_type.element, StructOf):
            yield from _struct(field_type.element, version, done)


def _name(type_: StructOf, version: int) -> str:
    return f"{type_.spec_name} v{version}"


def _type(type_: WireType, version: int) -> str:
    if isinstance(type_, ArrayOf):
        return f"{{array = {_type(type_.element, version)}}}"
    if isinstance(type_, StructOf):
        return f'"{_name(type_, version)}"'
    return f'"{type_.spec_name}"'


def _apis() -> Iterator[str]:
    yield "local apis = {"
    for api in APIS.values():
        versions = ", ".join(
            f'[{version}] = {{"{_name(codec(api.request, version), version)}", '
            f'"{_name(codec(api.response, version), version)}"}}'
            for version in range(api.min_version, api.max_version + 1)
        )
        yield f'  [{int(api.key)}] = {{name = "{api.name}", versions = {{{versions}}}}},'
    yield "}"


def _errors() -> Iterator[str]:
    yield "local errors = {"
    yield from (f'  [{int(code)}] = "{code.name}",' for code in ErrorCode)
    yield "}"


def _batch_header() -> Iterator[str]:
    yield "local batch_header = {"
    for declared in BATCH_HEADER.subcons:
        type_ = "uint32" if declared.name == "crc" else f"int{8 * declared.sizeof()}"
        yield f'  {{"{declared.name}", "{type_}"}},'
    yield "}"


_HEAD = """\
-- The millrace protocol for Wireshark.
-- Made by `python -m millrace_protocol.spec --lua`; change the declarations, not this file.

local millrace = Proto("millrace", "millrace")
"""

_WALKER = (
    f"""
local HEADER_SIZE = {HEADER_SIZE}
local RESPONSE_BIT = {RESPONSE_BIT:#06x}
local MAGIC = 0x4d52
local ELEMENTS_MAX = 200
local BATCH_HEADER_SIZE = {BATCH_HEADER.sizeof()}
"""
    + r"""
-- Raises a table with the position where `size` bytes are not there.
local function need(tvb, position, size, what)
  if size < 0 or position + size > tvb:len() then
    error({position = position, reason = what .. " does not fit into the frame"})
  end
end

local read = {}

local function integer(size, method)
  return function(tvb, position, tree, name)
    need(tvb, position, size, name)
    local range = tvb(position, size)
    local value = range[method](range)
    local note = ""
    if name:match("error_code$") and errors[value] then note = " (" .. errors[value] .. ")" end
    tree:add(range, name .. ": " .. tostring(value) .. note)
    return position + size
  end
end

read["int8"] = integer(1, "int")
read["int16"] = integer(2, "int")
read["int32"] = integer(4, "int")
read["int64"] = integer(8, "int64")
read["uint16"] = integer(2, "uint")
read["uint32"] = integer(4, "uint")
read["float64"] = integer(8, "float")
read["boolean"] = integer(1, "uint")

read["string"] = function(tvb, position, tree, name)
  need(tvb, position, 2, name)
  local size = tvb(position, 2):int()
  if size == -1 then
    tree:add(tvb(position, 2), name .. ": null")
    return position + 2
  end
  need(tvb, position + 2, size, name)
  local text = size > 0 and tvb(position + 2, size):string() or ""
  tree:add(tvb(position, 2 + size), name .. ": " .. text)
  return position + 2 + size
end
read["nullable string"] = read["string"]

read["uuid"] = function(tvb, position, tree, name)
  need(tvb, position, 16, name)
  tree:add(tvb(position, 16), name .. ": " .. tostring(tvb(position, 16):bytes()))
  return position + 16
end

read["bytes"] = function(tvb, position, tree, name)
  need(tvb, position, 4, name)
  local size = math.max(tvb(position, 4):int(), 0)
  need(tvb, position + 4, size, name)
  tree:add(tvb(position, 4 + size), name .. ": " .. size .. " bytes")
  return position + 4 + size
end
read["nullable bytes"] = read["bytes"]

read["records"] = function(tvb, position, tree, name)
  need(tvb, position, 4, name)
  local size = tvb(position, 4):int()
  need(tvb, position + 4, size, name)
  local finish = position + 4 + size
  local branch = tree:add(tvb(position, 4 + size), name .. ": " .. size .. " bytes")
  position = position + 4
  local index = 0
  while position + BATCH_HEADER_SIZE <= finish and index < ELEMENTS_MAX do
    local batch_size = 12 + tvb(position + 8, 4):int()
    if batch_size < BATCH_HEADER_SIZE or position + batch_size > finish then break end
    local label = name .. "[" .. index .. "]"
    local batch = branch:add(tvb(position, batch_size), label .. ": " .. batch_size .. " bytes")
    local at = position
    for _, field in ipairs(batch_header) do
      at = read[field[2]](tvb, at, batch, label .. "." .. field[1])
    end
    position = position + batch_size
    index = index + 1
  end
  return finish
end

local read_type

local function read_struct(tvb, position, tree, fields, prefix)
  for _, field in ipairs(fields) do
    position = read_type(tvb, position, tree, field[2], prefix .. field[1])
  end
  return position
end

-- Elements beyond ELEMENTS_MAX are read and not shown.
local hidden = {}
function hidden:add() return self end

read_type = function(tvb, position, tree, type_, name)
  if type(type_) == "table" then
    need(tvb, position, 4, name)
    local count = tvb(position, 4):int()
    if count == -1 then
      tree:add(tvb(position, 4), name .. ": null")
      return position + 4
    end
    local branch = tree:add(tvb(position, 4), name .. ": " .. count .. " elements")
    need(tvb, position + 4, math.max(count, 0), name)
    position = position + 4
    for index = 0, count - 1 do
      local shown = index < ELEMENTS_MAX and branch or hidden
      position = read_type(tvb, position, shown, type_.array, name .. "[" .. index .. "]")
    end
    return position
  end
  if structs[type_] then
    return read_struct(tvb, position, tree, structs[type_], name .. ".")
  end
  return read[type_](tvb, position, tree, name)
end

local function body_type(key, version, is_response, error_code)
  if is_response and error_code ~= 0 then return "ErrorResponse v0" end
  local versions = apis[key] and apis[key].versions[version]
  return versions and versions[is_response and 2 or 1]
end

local function dissect_frame(tvb, pinfo, root)
  pinfo.cols.protocol = "millrace"
  local api = tvb(6, 2):uint()
  local version = tvb(8, 2):uint()
  local last = tvb(14, 2):int()
  local is_response = api >= RESPONSE_BIT
  local key = api % RESPONSE_BIT
  local name = apis[key] and apis[key].name or ("api " .. key)
  local title = name .. (is_response and " response" or " request") .. " v" .. version ..
    " #" .. tvb(10, 4):uint()
  pinfo.cols.info = title
  local tree = root:add(millrace, tvb(), title)
  tree:add(tvb(0, 4), "length: " .. tvb(0, 4):uint())
  tree:add(tvb(4, 2), "magic: " .. tvb(4, 2):string())
  tree:add(tvb(6, 2), "api: " .. key)
  tree:add(tvb(8, 2), "version: " .. version)
  tree:add(tvb(10, 4), "correlation_id: " .. tvb(10, 4):uint())
  local ok, problem = pcall(function()
    local position = HEADER_SIZE
    if is_response then
      read["int16"](tvb, 14, tree, "error_code")
    else
      position = read["string"](tvb, 14, tree, "client_id")
    end
    local body = body_type(key, version, is_response, last)
    if not body then error({position = position, reason = "no such api or version"}) end
    position = read_struct(tvb, position, tree, structs[body], "")
    if position ~= tvb:len() then
      error({position = position, reason = "bytes follow the body"})
    end
  end)
  if not ok then
    if type(problem) ~= "table" then error(problem) end
    local rest = tvb:len() - problem.position
    local range = rest > 0 and tvb(problem.position, rest) or tvb()
    tree:add(range, "broken at byte " .. problem.position .. ": " .. problem.reason)
  end
  return tvb:len()
end

local function frame_length(tvb, _, offset)
  return 4 + tvb(offset, 4):uint()
end

function millrace.dissector(tvb, pinfo, root)
  if tvb:len() < 6 or tvb(4, 2):uint() ~= MAGIC then return 0 end
  dissect_tcp_pdus(tvb, root, HEADER_SIZE, frame_length, dissect_frame)
  return tvb:len()
end

millrace:register_heuristic("tcp", function(tvb, pinfo, root)
  if tvb:len() < HEADER_SIZE or tvb(4, 2):uint() ~= MAGIC then return false end
  millrace.dissector(tvb, pinfo, root)
  return true
end)
DissectorTable.get("tcp.port"):add_for_decode_as(millrace)
"""
)
