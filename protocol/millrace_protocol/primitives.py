"""The types of a field on the wire (wire_spec.md W-3), as `construct` declarations.

Fixed-width integers are big-endian. Strings, bytes and arrays carry their length before them;
a length is checked against the bytes that are there *before* anything is allocated, so that a
20-byte frame cannot ask for two billion elements. Every refusal is a `WireError` with the
position of the byte that is wrong.
"""

from __future__ import annotations

import io
import struct
import uuid
from typing import IO, TYPE_CHECKING, Any, cast

import construct

from millrace_protocol.body_errors import (
    bad_boolean,
    bad_count,
    bad_length,
    bad_uvarint,
    not_utf8,
    short_value,
)
from millrace_protocol.uvarint import UVARINT_BYTES_MAX, read_uvarint, uvarint

# construct's stubs are generic where its classes are not.
if TYPE_CHECKING:
    _Construct = construct.Construct[Any, Any]
else:
    _Construct = construct.Construct

STRING_BYTES_MAX = 32_767
"""A string's length is an int16 (W-3.3)."""
ARRAY_COUNT_MAX = 100_000
"""Most elements of one array (W-3.5): what a decoder is willing to loop over."""
TAGS_MAX = 32
"""Most tagged fields of one struct. Those that a decoder does not know are skipped."""


_FLOAT64 = struct.Struct(">d")


class Elements:
    """How many array elements a body may still hold (W-3.5).

    Nested arrays multiply: a limit on each alone lets one frame keep a decoder busy for minutes.
    """

    __slots__ = ("_array_max", "_elements_max", "_left")

    def __init__(self, *, array_max: int, elements_max: int) -> None:
        self._array_max = array_max
        self._elements_max = elements_max
        self._left = elements_max

    def spend(self, count: int, *, bytes_left: int, field: str, position: int) -> None:
        """Takes one array's `count` from the elements left. Raises `WireError` if it is over."""
        self._left -= count
        if not 0 <= count <= min(bytes_left, self._array_max) or self._left < 0:
            raise bad_count(
                field,
                count,
                left=bytes_left,
                array_max=self._array_max,
                elements_max=self._elements_max,
                position=position,
            )


class BodyStream(io.BytesIO):
    """A body being decoded, and what its arrays may still hold."""

    def __init__(self, body: bytes | bytearray | memoryview, elements: Elements) -> None:
        super().__init__(body)
        self.elements = elements
        self._size = len(body)

    @property
    def bytes_left(self) -> int:
        """How many bytes follow the position."""
        return self._size - self.tell()


class WireType(_Construct):
    """A `construct` construct with the name the specification gives it."""

    def __init__(self, spec_name: str) -> None:
        super().__init__()
        self.spec_name = spec_name


def field_path(path: str) -> str:
    """`topics[3].name`, from construct's path `(parsing) -> topics[3] -> name`."""
    return ".".join(path.split(" -> ")[1:])


def _read(stream: IO[bytes], size: int, type_name: str, path: str) -> bytes:
    position = stream.tell()
    data = stream.read(size)
    if len(data) != size:
        raise short_value(field_path(path), type_name, size=size, left=len(data), position=position)
    return data


class _Integer(WireType):
    def __init__(self, spec_name: str, size: int, *, signed: bool = True) -> None:
        super().__init__(spec_name)
        self.size = size
        self.signed = signed

    def _parse(self, stream: IO[bytes], context: Any, path: str) -> int:
        return int.from_bytes(
            _read(stream, self.size, self.spec_name, path), "big", signed=self.signed
        )

    def _build(self, obj: int, stream: IO[bytes], context: Any, path: str) -> int:
        try:
            stream.write(int(obj).to_bytes(self.size, "big", signed=self.signed))
        except OverflowError:
            raise ValueError(f"{obj} does not fit {self.spec_name} ({path})") from None
        return obj

    def _sizeof(self, context: Any, path: str) -> int:
        return self.size


class _Float(WireType):
    def _parse(self, stream: IO[bytes], context: Any, path: str) -> float:
        value: float
        (value,) = _FLOAT64.unpack(_read(stream, _FLOAT64.size, self.spec_name, path))
        return value

    def _build(self, obj: float, stream: IO[bytes], context: Any, path: str) -> Any:
        stream.write(_FLOAT64.pack(obj))
        return obj

    def _sizeof(self, context: Any, path: str) -> int:
        return _FLOAT64.size


class _Boolean(WireType):
    def _parse(self, stream: IO[bytes], context: Any, path: str) -> bool:
        position = stream.tell()
        byte = _read(stream, 1, self.spec_name, path)[0]
        if byte > 1:
            raise bad_boolean(field_path(path), byte, position)
        return byte == 1

    def _build(self, obj: bool, stream: IO[bytes], context: Any, path: str) -> bool:
        stream.write(b"\x01" if obj else b"\x00")
        return obj


class _Uvarint(WireType):
    """An unsigned varint (KIP-482)."""

    def _parse(self, stream: IO[bytes], context: Any, path: str) -> int:
        position = stream.tell()
        head = stream.read(UVARINT_BYTES_MAX)
        try:
            value, size = read_uvarint(head, 0)
        except (IndexError, ValueError):
            raise bad_uvarint(field_path(path), position) from None
        stream.seek(position + size)
        return value

    def _build(self, obj: int, stream: IO[bytes], context: Any, path: str) -> int:
        stream.write(uvarint(obj))
        return obj


class _CompactLength(_Uvarint):
    """A length, or a count, and 1; 0 stands for null, which is -1."""

    def _parse(self, stream: IO[bytes], context: Any, path: str) -> int:
        return super()._parse(stream, context, path) - 1

    def _build(self, obj: int, stream: IO[bytes], context: Any, path: str) -> int:
        super()._build(obj + 1, stream, context, path)
        return obj


UVARINT = _Uvarint("unsigned varint")
COMPACT_LENGTH = _CompactLength("compact length")


class Sized(WireType):
    """Length-prefixed bytes or text; a length of -1 is null where `nullable`."""

    length: WireType

    def __init__(self, spec_name: str, *, nullable: bool, is_compact: bool = False) -> None:
        super().__init__(spec_name)
        self.nullable = nullable
        self.is_compact = is_compact
        if is_compact:
            self.length = COMPACT_LENGTH

    def _parse(self, stream: IO[bytes], context: Any, path: str) -> Any:
        position = stream.tell()
        size = self.length._parse(stream, context, path)
        if size == -1 and self.nullable:
            return None
        if size < 0:
            raise bad_length(field_path(path), self.spec_name, size, position)
        start = stream.tell()
        return self._from_wire(_read(stream, size, self.spec_name, path), start, path)

    def _build(self, obj: Any, stream: IO[bytes], context: Any, path: str) -> Any:
        if obj is None:
            if not self.nullable:
                raise ValueError(f"{path} may not be null")
            self.length._build(-1, stream, context, path)
            return obj
        data = self._to_wire(obj)
        self.length._build(len(data), stream, context, path)
        stream.write(data)
        return obj

    def _from_wire(self, data: bytes, start: int, path: str) -> Any:
        return data

    def _to_wire(self, obj: Any) -> bytes:
        return bytes(obj)


INT8 = _Integer("int8", 1)
INT16 = _Integer("int16", 2)
INT32 = _Integer("int32", 4)
INT64 = _Integer("int64", 8)
UINT16 = _Integer("uint16", 2, signed=False)
UINT32 = _Integer("uint32", 4, signed=False)
FLOAT64 = _Float("float64")
BOOLEAN = _Boolean("boolean")


class String(Sized):
    length = INT16

    def _from_wire(self, data: bytes, start: int, path: str) -> str:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise not_utf8(field_path(path), error, start) from None

    def _to_wire(self, obj: str) -> bytes:
        data = obj.encode("utf-8")
        if len(data) > STRING_BYTES_MAX:
            raise ValueError(f"a string of {len(data)} bytes; the limit is {STRING_BYTES_MAX}")
        return data


class _Bytes(Sized):
    length = INT32


class _Uuid(WireType):
    def _parse(self, stream: IO[bytes], context: Any, path: str) -> uuid.UUID:
        return uuid.UUID(bytes=_read(stream, 16, self.spec_name, path))

    def _build(self, obj: uuid.UUID, stream: IO[bytes], context: Any, path: str) -> Any:
        stream.write(obj.bytes)
        return obj


STRING = String("string", nullable=False)
NULLABLE_STRING = String("nullable string", nullable=True)
BYTES = _Bytes("bytes", nullable=False)
NULLABLE_BYTES = _Bytes("nullable bytes", nullable=True)
RECORDS = _Bytes("records", nullable=False)
"""Zero or more whole record batches, back to back (W-5)."""
NULLABLE_RECORDS = _Bytes("nullable records", nullable=True)
UUID = _Uuid("uuid")
_SIZED = (STRING, NULLABLE_STRING, BYTES, NULLABLE_BYTES, RECORDS, NULLABLE_RECORDS)
_COMPACT: dict[WireType, Sized] = {
    each: type(each)(f"compact {each.spec_name}", nullable=each.nullable, is_compact=True)
    for each in _SIZED
}
_NULLABLE: dict[WireType, Sized] = {
    STRING: NULLABLE_STRING,
    BYTES: NULLABLE_BYTES,
    RECORDS: NULLABLE_RECORDS,
}
ANY_RECORDS = frozenset({RECORDS, NULLABLE_RECORDS, _COMPACT[RECORDS], _COMPACT[NULLABLE_RECORDS]})
"""Fields that are record batches: not copied, and parts of their own."""


def in_form(type_: WireType, *, is_nullable: bool, is_compact: bool) -> WireType:
    """A type as a version of a message has it: nullable, and with compact lengths, or not."""
    if is_nullable:
        type_ = _NULLABLE.get(type_, type_)
    return _COMPACT.get(type_, type_) if is_compact else type_


class ArrayOf(WireType):
    """An int32 count, then that many elements; a count of -1 is null where `nullable`."""

    def __init__(
        self, element: WireType, *, nullable: bool = False, is_compact: bool = False
    ) -> None:
        prefix = "nullable array" if nullable else "array"
        super().__init__(f"{prefix} of {element.spec_name}")
        self.element = element
        self.nullable = nullable
        self.is_compact = is_compact
        self._count = COMPACT_LENGTH if is_compact else INT32

    def read_count(self, stream: BodyStream, path: str = "") -> int:
        """The count at the stream's position; -1 for null. Raises `WireError` if it is over."""
        position = stream.tell()
        count: int = self._count._parse(stream, None, path)
        if count == -1 and self.nullable:
            return count
        stream.elements.spend(
            count, bytes_left=stream.bytes_left, field=field_path(path), position=position
        )
        return count

    def _parse(self, stream: IO[bytes], context: Any, path: str) -> Any:
        count = self.read_count(cast(BodyStream, stream), path)
        if count < 0:
            return None
        return tuple(
            self.element._parsereport(stream, context, f"{path}[{index}]") for index in range(count)
        )

    def _build(self, obj: Any, stream: IO[bytes], context: Any, path: str) -> Any:
        if obj is None:
            if not self.nullable:
                raise ValueError(f"{path} may not be null")
            self._count._build(-1, stream, context, path)
            return obj
        if len(obj) > ARRAY_COUNT_MAX:
            raise ValueError(f"an array of {len(obj)} elements; the limit is {ARRAY_COUNT_MAX}")
        self._count._build(len(obj), stream, context, path)
        for element in obj:
            self.element._build(element, stream, context, path)
        return obj
