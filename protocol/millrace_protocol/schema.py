"""Messages declared once: from one dataclass come the codec, the dissector and the spec's table.

A message body is a dataclass whose fields are made with `wire`: the type on the wire, the meaning,
and the version that added the field. `codec(cls, version)` turns that into a `construct` struct
which parses to, and builds from, instances of the class. The classes are not frozen, because a
frozen one takes five times as long to make; code treats instances as values nevertheless.

    >>> @dataclass(slots=True)
    ... class Ping(Message):
    ...     text: str = wire(STRING, "echoed back")
    >>> encode_declared(Ping("hi"), 0)
    b'\\x00\\x02hi'
    >>> decode_declared(Ping, b'\\x00\\x02hi', 0)
    Ping(text='hi')
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import IO, Any, ClassVar, TypeVar, cast

import construct

from millrace_protocol.body_errors import trailing_bytes
from millrace_protocol.primitives import (
    ARRAY_COUNT_MAX,
    RECORDS,
    ArrayOf,
    BodyStream,
    Elements,
    WireType,
)
from millrace_protocol.primitives import STRING as STRING

M = TypeVar("M", bound="Message")


@dataclass(slots=True)
class Message:
    """Base of every message body and of every struct inside one.

    `array_max`: how many elements one array of a body may hold; `elements_max`: how many all of
    them may hold together (W-3.5).
    """

    array_max: ClassVar[int] = ARRAY_COUNT_MAX
    elements_max: ClassVar[int] = 2_000_000


@dataclass(slots=True)
class Request(Message):
    """Base of every request, with limits for what a broker decodes for any peer.

    They admit an array as long as W-6.4 allows, and one nested element for each of its elements.
    """

    array_max: ClassVar[int] = 2_000
    elements_max: ClassVar[int] = 4_000


@dataclass(slots=True)
class BrokerRequest(Message):
    """Base of a request that names every partition of a broker, with the limits of a response.

    A broker decodes it for the brokers of its cluster only (W-12.0.2).
    """


@dataclass(frozen=True, slots=True)
class WireField:
    """A field on the wire: type, meaning, unit, and the version that added it."""

    type: WireType
    doc: str
    unit: str
    since: int


def wire(
    type_: WireType,
    doc: str,
    *,
    unit: str = "",
    since: int = 0,
    default: Any = dataclasses.MISSING,
) -> Any:
    """Declares a field of a message.

    A field of a later version needs a `default`, which older versions are read with.
    """
    if since and default is dataclasses.MISSING:
        raise TypeError(f"a field since version {since} needs a default for the versions before")
    metadata = {"wire": WireField(type_, doc, unit, since)}
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(metadata=metadata, default=default)


def wire_fields(cls: type[Message], version: int) -> list[tuple[str, WireField]]:
    """The fields of `cls` that version `version` carries, in wire order."""
    fields = ((f.name, cast(WireField, f.metadata["wire"])) for f in dataclasses.fields(cls))
    return [(name, field) for name, field in fields if field.since <= version]


class StructOf(WireType):
    """A message's fields back to back, without padding, as an instance of its class."""

    def __init__(self, cls: type[Message], version: int) -> None:
        super().__init__(cls.__name__)
        self.cls = cls
        fields = wire_fields(cls, version)
        self.names = tuple(name for name, _ in fields)
        self.types = tuple(_at_version(field.type, version) for _, field in fields)
        self.fields = construct.Struct(
            *(name / type_ for name, type_ in zip(self.names, self.types, strict=True))
        )

    def _parse(self, stream: IO[bytes], context: Any, path: str) -> Message:
        container = self.fields._parse(stream, context, path)
        return self.cls(**{name: v for name, v in container.items() if not name.startswith("_")})

    def _build(self, obj: Message, stream: IO[bytes], context: Any, path: str) -> Any:
        self.fields._build({name: getattr(obj, name) for name in self.names}, stream, context, path)
        return obj


class Struct(WireType):
    """A nested message as a field's type; resolved to the outer message's version."""

    def __init__(self, cls: type[Message]) -> None:
        super().__init__(cls.__name__)
        self.cls = cls


def array_of(element: WireType | type[Message], *, nullable: bool = False) -> ArrayOf:
    """An array of a primitive type or of a nested message."""
    if isinstance(element, type):
        element = Struct(element)
    return ArrayOf(element, nullable=nullable)


def _at_version(type_: WireType, version: int) -> WireType:
    if isinstance(type_, ArrayOf):
        return ArrayOf(_at_version(type_.element, version), nullable=type_.nullable)
    if isinstance(type_, Struct):
        return codec(type_.cls, version)
    return type_


_codecs: dict[tuple[type[Message], int], StructOf] = {}


def codec(cls: type[Message], version: int) -> StructOf:
    """The `construct` codec of one version of a message; made once."""
    made = _codecs.get((cls, version))
    if made is None:
        made = _codecs[cls, version] = StructOf(cls, version)
    return made


def arrays_of(type_: StructOf) -> Iterator[ArrayOf]:
    """The array fields of a message, those of its elements included."""
    for field_type in type_.types:
        if isinstance(field_type, ArrayOf):
            yield field_type
            if isinstance(field_type.element, StructOf):
                yield from arrays_of(field_type.element)


@cache
def has_records(type_: StructOf) -> bool:
    """Whether a message carries record batches, which are not copied."""
    elements = [array.element for array in arrays_of(type_)]
    return any(RECORDS in each.types for each in (type_, *elements) if isinstance(each, StructOf))


def body_elements(cls: type[Message]) -> Elements:
    """A count of what the arrays of one body may hold."""
    return Elements(array_max=cls.array_max, elements_max=cls.elements_max)


def encode_declared(message: Message, version: int) -> bytes:
    """The bytes of a message body, by the declaration; the compiled codec is faster.

    Raises `ValueError` for a value its type cannot carry.
    """
    stream = io.BytesIO()
    codec(type(message), version).build_stream(message, stream)
    return stream.getvalue()


def decode_declared(cls: type[M], body: bytes | bytearray | memoryview, version: int) -> M:
    """A message from a whole body, by the declaration; the compiled codec is faster.

    Raises `WireError` when the body is short, broken or too long.
    """
    stream = BodyStream(body, body_elements(cls))
    message = codec(cls, version).parse_stream(stream)
    if stream.tell() != len(body):
        raise trailing_bytes(cls.__name__, stream.bytes_left, stream.tell())
    return cast(M, message)
