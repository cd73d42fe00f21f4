"""Bodies of messages: the layouts of wire_spec.md W-4, and their bytes (W-3).

A layout is text: `topic string, partitions [partition int32, records bytes]`. Square brackets are
an array of a struct, or of a type when they hold one word; a question mark means nullable.
"""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

INTEGERS = {
    "int8": ">b",
    "int16": ">h",
    "int32": ">i",
    "int64": ">q",
    "uint16": ">H",
    "uint32": ">I",
}
_TOKEN = re.compile(r"[\[\],]|[a-z0-9_]+\??|\?")


class Broken(Exception):
    """A response whose bytes do not follow the layout."""


class Fields(dict[str, Any]):
    """A struct that was read: its fields by name."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


class Layout:
    """One struct: field names and types, in the order of the wire."""

    def __init__(self, text: str) -> None:
        tokens = iter(_TOKEN.findall(text))
        self.fields = list(_fields(tokens))

    def encode(self, values: Sequence[Any]) -> bytes:
        """The bytes of the values, which stand in the order of the fields."""
        if len(values) != len(self.fields):
            raise ValueError(f"{len(values)} values for {[name for name, _ in self.fields]}")
        pairs = zip(self.fields, values, strict=True)
        return b"".join(_encode(type_, value) for (_, type_), value in pairs)

    def read(self, body: bytes, position: int) -> tuple[Fields, int]:
        """The struct at `position`, and where it ends."""
        found = Fields()
        for name, type_ in self.fields:
            found[name], position = _read(type_, body, position)
        return found, position

    def decode(self, body: bytes) -> Fields:
        """A whole body. Raises `Broken` also for bytes that follow it (W-2.5)."""
        found, end = self.read(body, 0)
        if end != len(body):
            raise Broken(f"{len(body) - end} bytes follow the body")
        return found


class Array:
    """An array type; `element` is a type's name or a layout."""

    def __init__(self, element: str | Layout, *, nullable: bool) -> None:
        self.element = element
        self.nullable = nullable


Type = str | Array


def _fields(tokens: Iterator[str]) -> Iterator[tuple[str, Type]]:
    for name in tokens:
        if name == "]":
            return
        if name == ",":
            continue
        type_ = next(tokens)
        yield name, _array(tokens) if type_ == "[" else type_


def _array(tokens: Iterator[str]) -> Array:
    inside, depth = [], 1
    for token in tokens:
        depth += {"[": 1, "]": -1}.get(token, 0)
        if not depth:
            break
        inside.append(token)
    nullable = inside[-1:] == ["?"]
    if nullable:
        inside.pop()
    if len(inside) == 1:
        return Array(inside[0], nullable=nullable)
    return Array(Layout(" ".join(inside)), nullable=nullable)


def _encode(type_: Type, value: Any) -> bytes:
    if isinstance(type_, Array):
        if value is None:
            return struct.pack(">i", -1)
        element = type_.element
        encoded = (
            element.encode(each) if isinstance(element, Layout) else _encode(element, each)
            for each in value
        )
        return struct.pack(">i", len(value)) + b"".join(encoded)
    if type_ in INTEGERS:
        return struct.pack(INTEGERS[type_], value)
    if type_ == "float64":
        return struct.pack(">d", value)
    if type_ == "boolean":
        return bytes([value])
    if type_ == "uuid":
        return bytes(value.bytes)
    size = ">h" if type_.startswith("string") else ">i"
    if value is None:
        return struct.pack(size, -1)
    data = value.encode() if isinstance(value, str) else bytes(value)
    return struct.pack(size, len(data)) + data


def _read(type_: Type, body: bytes, position: int) -> tuple[Any, int]:
    if isinstance(type_, Array):
        count, position = _integer(">i", body, position)
        if count == -1 and type_.nullable:
            return None, position
        if count < 0:
            raise Broken(f"an array of {count} elements at byte {position - 4}")
        found = []
        for _ in range(count):
            element = type_.element
            if isinstance(element, Layout):
                value, position = element.read(body, position)
            else:
                value, position = _read(element, body, position)
            found.append(value)
        return found, position
    if type_ in INTEGERS:
        return _integer(INTEGERS[type_], body, position)
    if type_ == "float64":
        if position + 8 > len(body):
            raise Broken(f"the body ends before byte {position + 8}")
        return struct.unpack_from(">d", body, position)[0], position + 8
    if type_ == "boolean":
        if body[position] > 1:
            raise Broken(f"a boolean is {body[position]} at byte {position}")
        return body[position] == 1, position + 1
    if type_ == "uuid":
        return uuid.UUID(bytes=body[position : position + 16]), position + 16
    return _sized(type_, body, position)


def _sized(type_: str, body: bytes, position: int) -> tuple[Any, int]:
    is_string = type_.startswith("string")
    size, position = _integer(">h" if is_string else ">i", body, position)
    if size == -1 and type_.endswith("?"):
        return None, position
    if size < 0 or position + size > len(body):
        raise Broken(f"{type_} of {size} bytes at byte {position}, and the body has {len(body)}")
    data = body[position : position + size]
    return data.decode() if is_string else data, position + size


def _integer(form: str, body: bytes, position: int) -> tuple[int, int]:
    try:
        (value,) = struct.unpack_from(form, body, position)
    except struct.error:
        raise Broken(f"the body ends before byte {position}") from None
    return value, position + struct.calcsize(form)
