"""The declared messages as chains of `struct` calls: what decodes and encodes every body.

Owns speed for the messages that have no codec of their own in `hot`. From the declarations of
`schema` it makes, once per message and version, a list of steps: a run of fixed-width fields is one
`struct` call, everything else a closure. Bodies, values and refusals are those of the declared
codec to the byte and the word, which property tests pin; that one takes 20 us for an array
element, this one 2. It matters when somebody means harm: a broken body must not cost more to
refuse than a whole one to read.
"""

from __future__ import annotations

import dataclasses
import struct
import uuid
from collections.abc import Callable, Generator
from operator import attrgetter
from typing import Any, TypeVar, cast

from millrace_protocol.errors import WireError
from millrace_protocol.primitives import (
    ARRAY_COUNT_MAX,
    BOOLEAN,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING_BYTES_MAX,
    UINT16,
    UINT32,
    UUID,
    ArrayOf,
    Elements,
    Sized,
    String,
    WireType,
    check_array,
)
from millrace_protocol.schema import Message, StructOf, body_elements, codec, encode_declared

Buffer = bytes | bytearray | memoryview
M = TypeVar("M", bound=Message)

PIECE_ELEMENTS = 20
"""Encoded in one go; each may hold an array of its own."""
PIECE_READ_ELEMENTS = 100
"""Decoded in one go, some 150 us."""
PIECE_READ_BYTES = 64 << 10
"""The same where elements are long."""
_UNFIT = (struct.error, TypeError, AttributeError, ValueError)
"""What a value that does not fit raises here; the declared codec says what is wrong with it."""

_Read = Callable[[memoryview, int, Elements, list[Any]], int]
"""Appends the values of one step at a position to a list; returns where the step ends."""
_Write = Callable[[Any, list[Buffer]], None]
"""Appends the bytes of one step of a message to a list."""

_LETTERS: dict[WireType, str] = {
    INT8: "b",
    INT16: "h",
    INT32: "i",
    INT64: "q",
    UINT16: "H",
    UINT32: "I",
    BOOLEAN: "B",
}
_NUMBER = {letter: struct.Struct(">" + letter) for letter in _LETTERS.values()}


def decode_body(cls: type[M], body: Buffer, version: int) -> M:
    """A message from a whole body: raises `WireError` when it is short, broken or too long."""
    message, end = decode_leading(cls, body, version)
    if end != len(body):
        raise _too_long(cls, len(body), end)
    return message


def decode_leading(cls: type[M], data: Buffer, version: int, *, position: int = 0) -> tuple[M, int]:
    """The message that starts at `position` of `data`, and where it ends.

    Raises `WireError`, with positions in `data`, when it is short or broken.
    """
    values: list[Any] = []
    end = _reader(codec(cls, version))(memoryview(data), position, body_elements(cls), values)
    return cast(M, values[0]), end


def decode_in_pieces(cls: type[M], body: Buffer, version: int) -> Generator[None, None, M]:
    """`decode_body`, with a `yield` after each `PIECE_READ_ELEMENTS` of the message's arrays."""
    type_ = codec(cls, version)
    view, elements, position = memoryview(body), body_elements(cls), 0
    fields: dict[str, Any] = {}
    for types, names in _runs(type_):
        values: list[Any] = []
        if isinstance(array := types[0], ArrayOf):
            read, found = _reader(array.element), list[Any]()
            count, position = _array_count(array.nullable, view, position, elements)
            due = position + PIECE_READ_BYTES
            for index in range(count or 0):
                position = read(view, position, elements, found)
                if position >= due or index % PIECE_READ_ELEMENTS == PIECE_READ_ELEMENTS - 1:
                    due = position + PIECE_READ_BYTES
                    yield
            values.append(None if count is None else tuple(found))
        else:
            step = _fixed_reader(types) if array in _LETTERS else _reader(array)
            position = step(view, position, elements, values)
        fields.update(zip(names, values, strict=True))
    if position != len(view):
        raise _too_long(cls, len(view), position)
    return cast(M, type_.cls(**fields))


def encode_body(message: Message, version: int) -> bytes:
    """The bytes of a message body. Raises `ValueError` for a value its type cannot carry."""
    parts: list[Buffer] = []
    try:
        _writer(codec(type(message), version))(message, parts)
    except _UNFIT:
        return encode_declared(message, version)
    return b"".join(parts)


def encode_in_pieces(message: Message, version: int) -> Generator[None, None, list[bytes]]:
    """The same in pieces; a `yield` after each `PIECE_ELEMENTS` of the message's last array."""
    runs = _runs(codec(type(message), version))
    if not runs:
        return []
    *before, (types, (*_, name)) = runs
    last, elements = types[-1], getattr(message, name)
    if not isinstance(last, ArrayOf) or elements is None or len(elements) > ARRAY_COUNT_MAX:
        return [encode_body(message, version)]
    pieces: list[bytes] = []
    parts: list[Buffer] = []
    write = _writer(last.element)
    try:
        for run in before:
            _field_writer(*run)(message, parts)
        parts.append(_NUMBER["i"].pack(len(elements)))
        for start in range(0, len(elements), PIECE_ELEMENTS):
            for element in elements[start : start + PIECE_ELEMENTS]:
                write(element, parts)
            pieces.append(b"".join(parts))
            parts.clear()
            yield
    except _UNFIT:
        return [encode_declared(message, version)]
    return [*pieces, *map(bytes, parts)]


# Reading

_readers: dict[WireType, _Read] = {}


def _reader(type_: WireType) -> _Read:
    made = _readers.get(type_)
    if made is None:
        made = _readers[type_] = _make_reader(type_)
    return made


def _make_reader(type_: WireType) -> _Read:
    match type_:
        case StructOf():
            return _struct_reader(type_)
        case ArrayOf():
            return _array_reader(type_)
        case Sized():
            return _sized_reader(type_)
    if type_ is UUID:
        return _read_uuid
    return _fixed_reader((type_,))


def _struct_reader(type_: StructOf) -> _Read:
    steps = [
        _fixed_reader(types) if types[0] in _LETTERS else _reader(types[0])
        for types, _ in _runs(type_)
    ]
    cls, names = type_.cls, type_.names
    # A field of a later version may stand between those of this one.
    in_order = names == tuple(field.name for field in dataclasses.fields(cls))[: len(names)]

    def read(view: memoryview, position: int, elements: Elements, values: list[Any]) -> int:
        fields: list[Any] = []
        for step in steps:
            position = step(view, position, elements, fields)
        values.append(cls(*fields) if in_order else cls(**dict(zip(names, fields, strict=True))))
        return position

    return read


def _fixed_reader(types: tuple[WireType, ...]) -> _Read:
    """Reads a run of integers and booleans at once; one by one only to say what is wrong."""
    letters = [_LETTERS[type_] for type_ in types]
    layout = struct.Struct(">" + "".join(letters))
    unpack, size = layout.unpack_from, layout.size
    booleans = [index for index, type_ in enumerate(types) if type_ is BOOLEAN]

    def refuse(view: memoryview, position: int) -> None:
        for type_, letter in zip(types, letters, strict=True):
            number = _NUMBER[letter]
            _check_left(view, position, number.size, type_.spec_name)
            if type_ is BOOLEAN and (byte := view[position]) > 1:
                raise WireError(f"a boolean is 0 or 1, not {byte}", position=position)
            position += number.size

    def read(view: memoryview, position: int, elements: Elements, values: list[Any]) -> int:
        if len(view) - position < size:
            refuse(view, position)
        values += unpack(view, position)
        return position + size

    def read_checked(view: memoryview, position: int, elements: Elements, values: list[Any]) -> int:
        if len(view) - position < size:
            refuse(view, position)
        numbers = list(unpack(view, position))
        for index in booleans:
            if numbers[index] > 1:
                refuse(view, position)
            numbers[index] = numbers[index] == 1
        values += numbers
        return position + size

    return read_checked if booleans else read


def _sized_reader(type_: Sized) -> _Read:
    name, nullable = type_.spec_name, type_.nullable
    number = _NUMBER[_LETTERS[type_.length]]
    unpack, prefix_size, prefix_name = number.unpack_from, number.size, type_.length.spec_name
    text = isinstance(type_, String)

    def read(view: memoryview, position: int, elements: Elements, values: list[Any]) -> int:
        start = position + prefix_size
        if start > len(view):
            _check_left(view, position, prefix_size, prefix_name)
        size: int = unpack(view, position)[0]
        if size < 0:
            if size == -1 and nullable:
                values.append(None)
                return start
            raise WireError(f"a length of {size} in a {name}", position=position)
        end = start + size
        if end > len(view):
            _check_left(view, start, size, name)
        if text:
            try:
                values.append(str(view[start:end], "utf-8"))
            except UnicodeDecodeError as error:
                raise WireError(
                    f"a string is not UTF-8: {error.reason}", position=start + error.start
                ) from None
        else:
            values.append(bytes(view[start:end]))
        return end

    return read


def _read_uuid(view: memoryview, position: int, elements: Elements, values: list[Any]) -> int:
    _check_left(view, position, 16, UUID.spec_name)
    values.append(uuid.UUID(bytes=bytes(view[position : position + 16])))
    return position + 16


def _array_reader(type_: ArrayOf) -> _Read:
    element, nullable = _reader(type_.element), type_.nullable

    def read(view: memoryview, position: int, elements: Elements, values: list[Any]) -> int:
        count, position = _array_count(nullable, view, position, elements)
        if count is None:
            values.append(None)
            return position
        found: list[Any] = []
        for _ in range(count):
            position = element(view, position, elements, found)
        values.append(tuple(found))
        return position

    return read


_unpack_count = _NUMBER["i"].unpack_from


def _array_count(
    nullable: bool, view: memoryview, position: int, elements: Elements
) -> tuple[int | None, int]:
    """How many elements follow, None for a null array, and where they start."""
    _check_left(view, position, 4, INT32.spec_name)
    (count,) = _unpack_count(view, position)
    start = position + 4
    if count == -1 and nullable:
        return None, start
    check_array(count, bytes_left=len(view) - start, position=position)
    elements.spend(count, position=position)
    return count, start


def _too_long(cls: type[Message], size: int, end: int) -> WireError:
    return WireError(f"extra bytes after the {cls.__name__}: {size - end}", position=end)


def _check_left(view: memoryview, position: int, size: int, what: str) -> None:
    left = len(view) - position
    if left < size:
        raise WireError(f"{what} needs {size} bytes and only {left} are left", position=position)


# Writing

_writers: dict[WireType, _Write] = {}


def _writer(type_: WireType) -> _Write:
    made = _writers.get(type_)
    if made is None:
        made = _writers[type_] = _make_writer(type_)
    return made


def _make_writer(type_: WireType) -> _Write:
    match type_:
        case StructOf():
            return _struct_writer(type_)
        case ArrayOf():
            return _array_writer(type_)
        case Sized():
            return _sized_writer(type_)
    if type_ is UUID:
        return lambda value, parts: parts.append(value.bytes)
    pack = struct.Struct(_packed((type_,))).pack
    return lambda value, parts: parts.append(pack(value))


def _struct_writer(type_: StructOf) -> _Write:
    steps = [_field_writer(types, names) for types, names in _runs(type_)]

    def write(message: Any, parts: list[Buffer]) -> None:
        for step in steps:
            step(message, parts)

    return write


def _field_writer(types: tuple[WireType, ...], names: tuple[str, ...]) -> _Write:
    get = attrgetter(*names)
    if types[0] not in _LETTERS:
        write_value = _writer(types[0])
        return lambda message, parts: write_value(get(message), parts)
    pack = struct.Struct(_packed(types)).pack
    if len(names) == 1:
        return lambda message, parts: parts.append(pack(get(message)))
    return lambda message, parts: parts.append(pack(*get(message)))


def _packed(types: tuple[WireType, ...]) -> str:
    return ">" + "".join("?" if type_ is BOOLEAN else _LETTERS[type_] for type_ in types)


def _sized_writer(type_: Sized) -> _Write:
    pack = _NUMBER[_LETTERS[type_.length]].pack
    null = pack(-1)
    nullable, text = type_.nullable, isinstance(type_, String)

    def write(value: Any, parts: list[Buffer]) -> None:
        if value is None and nullable:
            parts.append(null)
            return
        data = value.encode() if text else bytes(value)
        if text and len(data) > STRING_BYTES_MAX:
            raise ValueError(f"a string of {len(data)} bytes")
        parts += (pack(len(data)), data)

    return write


def _array_writer(type_: ArrayOf) -> _Write:
    element, nullable = _writer(type_.element), type_.nullable
    pack = _NUMBER["i"].pack

    def write(values: Any, parts: list[Buffer]) -> None:
        if values is None and nullable:
            parts.append(pack(-1))
            return
        if len(values) > ARRAY_COUNT_MAX:
            raise ValueError(f"an array of {len(values)} elements")
        parts.append(pack(len(values)))
        for value in values:
            element(value, parts)

    return write


def _runs(type_: StructOf) -> list[tuple[tuple[WireType, ...], tuple[str, ...]]]:
    """The fields in order: neighbours of fixed width together, each other one alone."""
    runs: list[tuple[tuple[WireType, ...], tuple[str, ...]]] = []
    for field_type, name in zip(type_.types, type_.names, strict=True):
        if field_type in _LETTERS and runs and runs[-1][0][0] in _LETTERS:
            types, names = runs.pop()
            runs.append(((*types, field_type), (*names, name)))
        else:
            runs.append(((field_type,), (name,)))
    return runs
