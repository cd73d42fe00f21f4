"""Messages declared once: from one dataclass come the codec, the dissector and the spec's table.

A message body is a dataclass whose fields are made with `wire`: the type on the wire, the meaning,
and the version that added the field. `codec(cls, version)` turns that into a `construct` struct
which parses to, and builds from, instances of the class. The classes are not frozen, because a
frozen one takes five times as long to make; code treats instances as values nevertheless.

    >>> @message
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
from typing import IO, Any, ClassVar, NamedTuple, TypeVar, cast, dataclass_transform

import construct

from millrace_protocol.body_errors import bad_tag_size, too_many_tags, trailing_bytes
from millrace_protocol.primitives import (
    ANY_RECORDS,
    ARRAY_COUNT_MAX,
    INT8,
    TAGS_MAX,
    UVARINT,
    ArrayOf,
    BodyStream,
    Elements,
    WireType,
    field_path,
    in_form,
)
from millrace_protocol.primitives import STRING as STRING
from millrace_protocol.uvarint import uvarint

M = TypeVar("M", bound="Message")


@dataclass(slots=True, init=False, repr=False, eq=False)
class Message:
    """Base of every message body and of every struct inside one.

    `array_max`: how many elements one array of a body may hold; `elements_max`: how many all of
    them may hold together (W-3.5).
    """

    array_max: ClassVar[int] = ARRAY_COUNT_MAX
    elements_max: ClassVar[int] = 2_000_000
    flexible_since: ClassVar[int | None] = None
    """From this version on lengths are compact, and structs end with tagged fields (KIP-482)."""

    def __init__(self, *values: Any, **named: Any) -> None:
        """Sets the fields: by position in the order of the class, or by name."""
        # Compiled with the first instance of a class; from then on it stands in this one's place.
        cls = type(self)
        cls.__init__ = _initializer(cls)  # type: ignore[method-assign]
        self.__init__(*values, **named)  # type: ignore[misc]

    def __repr__(self) -> str:
        fields = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self))
        return f"{type(self).__qualname__}({', '.join(fields)})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def _values(self) -> tuple[Any, ...]:
        return tuple([getattr(self, field.name) for field in dataclasses.fields(self)])


@dataclass(frozen=True, slots=True)
class WireField:
    """A field on the wire: type, meaning, unit, and the versions that have it.

    `until` is the last version with the field, None for all later ones. It may be null from
    version `nullable_since` on. A field with a `tag` is left out where it has its default.
    """

    type: WireType
    doc: str
    unit: str
    since: int
    until: int | None = None
    nullable_since: int | None = None
    tag: int | None = None
    may_be_compact: bool = True

    def is_in(self, version: int) -> bool:
        """Whether a version has the field."""
        return self.since <= version and (self.until is None or version <= self.until)


def wire(
    type_: WireType,
    doc: str,
    *,
    unit: str = "",
    since: int = 0,
    until: int | None = None,
    nullable_since: int | None = None,
    tag: int | None = None,
    may_be_compact: bool = True,
    default: Any = dataclasses.MISSING,
) -> Any:
    """Declares a field of a message; see `WireField`.

    A field that some versions do not have needs a `default`, which these are read with.
    """
    is_optional = since or until is not None or tag is not None
    if is_optional and default is dataclasses.MISSING:
        raise TypeError("a field that some versions do not have needs a default for them")
    field = WireField(type_, doc, unit, since, until, nullable_since, tag, may_be_compact)
    metadata = {"wire": field}
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(metadata=metadata, default=default)


def wire_fields(cls: type[Message], version: int) -> list[tuple[str, WireField]]:
    """The fields of `cls` that version `version` carries, in wire order."""
    fields = ((f.name, cast(WireField, f.metadata["wire"])) for f in dataclasses.fields(cls))
    return [(name, field) for name, field in fields if field.is_in(version)]


@dataclass_transform(field_specifiers=(wire,))
def message(cls: type[M]) -> type[M]:
    """Makes a class a message: a `dataclass(slots=True)` in a tenth of the time.

    A broker has some 450 of these classes, and `dataclass` compiles code for each: a fifth of a
    second of a start. Of a message only `__init__` is compiled, with its first instance.
    """
    made = dataclass(slots=True, init=False, repr=False, eq=False)(cls)
    # A class may be made before the first instance of its base, or after it.
    made.__init__ = Message.__init__  # type: ignore[method-assign]
    return made


def _initializer(cls: type[Message]) -> Any:
    """What `dataclass` would make for `__init__`."""
    namespace: dict[str, Any] = {}
    parameters, lines = ["self"], ["pass"]
    for field in dataclasses.fields(cls):
        default = ""
        if field.default is not dataclasses.MISSING:
            namespace[f"default_{field.name}"] = field.default
            default = f"=default_{field.name}"
        parameters.append(field.name + default)
        lines.append(f"self.{field.name} = {field.name}")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines), namespace)
    function = namespace["__init__"]
    function.__qualname__ = f"{cls.__qualname__}.__init__"
    return function


@message
class Request(Message):
    """Base of every request, with limits for what a broker decodes for any peer.

    They admit an array as long as W-6.4 allows, and one nested element for each of its elements.
    """

    array_max: ClassVar[int] = 2_000
    elements_max: ClassVar[int] = 4_000


@message
class BrokerRequest(Message):
    """Base of a request that names every partition of a broker, with the limits of a response.

    A broker decodes it for the brokers of its cluster only (W-12.0.2).
    """


class TaggedField(NamedTuple):
    """A field that follows the others of a struct where it does not have its default."""

    tag: int
    name: str
    type: WireType
    default: Any


class StructOf(WireType):
    """A message's fields back to back, without padding, as an instance of its class.

    One of a flexible version ends with `tags`, which is None in other versions.
    """

    def __init__(self, cls: type[Message], version: int, *, is_flexible: bool = False) -> None:
        super().__init__(cls.__name__)
        self.cls = cls
        found = wire_fields(cls, version)
        plain = [(name, field) for name, field in found if field.tag is None]
        self.names = tuple(name for name, _ in plain)
        self.types = tuple(_at_version(field, version, is_flexible) for _, field in plain)
        self.fields = construct.Struct(
            *(name / type_ for name, type_ in zip(self.names, self.types, strict=True))
        )
        self.tags: tuple[TaggedField, ...] | None = None
        if is_flexible:
            defaults = {field.name: field.default for field in dataclasses.fields(cls)}
            self.tags = tuple(
                TaggedField(field.tag, name, _at_version(field, version, True), defaults[name])
                for name, field in found
                if field.tag is not None
            )

    def _parse(self, stream: IO[bytes], context: Any, path: str) -> Message:
        container = self.fields._parse(stream, context, path)
        values = {name: v for name, v in container.items() if not name.startswith("_")}
        if self.tags is not None:
            values |= self._parse_tags(cast(BodyStream, stream), context, path)
        return self.cls(**values)

    def _parse_tags(self, stream: BodyStream, context: Any, path: str) -> dict[str, Any]:
        known = {each.tag: each for each in self.tags or ()}
        values: dict[str, Any] = {}
        position = stream.tell()
        field = field_path(path)
        count = UVARINT._parse(stream, context, path)
        if count > TAGS_MAX:
            raise too_many_tags(field, count, tags_max=TAGS_MAX, position=position)
        for _ in range(count):
            position = stream.tell()
            tag = UVARINT._parse(stream, context, path)
            size = UVARINT._parse(stream, context, path)
            end = stream.tell() + size
            if size > stream.bytes_left:
                raise bad_tag_size(field, tag, size, position)
            if tag in known:
                name, type_ = known[tag].name, known[tag].type
                values[name] = type_._parsereport(stream, context, f"{path} -> {name}")
                if stream.tell() != end:
                    raise bad_tag_size(field, tag, size, position)
            stream.seek(end)
        return values

    def _build(self, obj: Message, stream: IO[bytes], context: Any, path: str) -> Any:
        self.fields._build({name: getattr(obj, name) for name in self.names}, stream, context, path)
        if self.tags is not None:
            stream.write(tagged_bytes(self.tags, obj))
        return obj


def tagged_bytes(tags: tuple[TaggedField, ...], message: Message) -> bytes:
    """The tagged fields of a message that do not have their defaults, by their tags."""
    parts: list[bytes] = []
    for tag, name, type_, default in tags:
        value = getattr(message, name)
        # Most messages have the default itself.
        if value is not default and value != default:
            data = type_.build(value)
            parts += (uvarint(tag), uvarint(len(data)), data)
    return uvarint(len(parts) // 3) + b"".join(parts)


class NullableStruct(WireType):
    """A byte, then a struct; no struct follows a byte below 0, which is null."""

    def __init__(self, struct: StructOf) -> None:
        super().__init__(f"nullable {struct.spec_name}")
        self.struct = struct

    def _parse(self, stream: IO[bytes], context: Any, path: str) -> Message | None:
        if INT8._parse(stream, context, path) < 0:
            return None
        return self.struct._parse(stream, context, path)

    def _build(self, obj: Message | None, stream: IO[bytes], context: Any, path: str) -> Any:
        INT8._build(-1 if obj is None else 1, stream, context, path)
        if obj is not None:
            self.struct._build(obj, stream, context, path)
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


def _at_version(field: WireField, version: int, is_flexible: bool) -> WireType:
    since = field.nullable_since
    is_nullable = since is not None and since <= version
    is_compact = is_flexible and field.may_be_compact
    return _in_version(field.type, version, is_nullable=is_nullable, is_compact=is_compact)


def _in_version(type_: WireType, version: int, *, is_nullable: bool, is_compact: bool) -> WireType:
    if isinstance(type_, ArrayOf):
        element = _in_version(type_.element, version, is_nullable=False, is_compact=is_compact)
        nullable = type_.nullable or is_nullable
        return ArrayOf(element, nullable=nullable, is_compact=is_compact)
    if isinstance(type_, Struct):
        struct = _struct_of(type_.cls, version, is_flexible=is_compact)
        return NullableStruct(struct) if is_nullable else struct
    return in_form(type_, is_nullable=is_nullable, is_compact=is_compact)


_codecs: dict[tuple[type[Message], int, bool], StructOf] = {}


def codec(cls: type[Message], version: int) -> StructOf:
    """The `construct` codec of one version of a message; made once."""
    since = cls.flexible_since
    return _struct_of(cls, version, is_flexible=since is not None and since <= version)


def _struct_of(cls: type[Message], version: int, *, is_flexible: bool) -> StructOf:
    """A struct of a message has compact lengths where the message has them."""
    key = cls, version, is_flexible
    made = _codecs.get(key)
    if made is None:
        made = _codecs[key] = StructOf(cls, version, is_flexible=is_flexible)
    return made


def arrays_of(type_: StructOf) -> Iterator[ArrayOf]:
    """The array fields of a message, those of its elements included."""
    for field_type in (*type_.types, *(each.type for each in type_.tags or ())):
        if isinstance(field_type, ArrayOf):
            yield field_type
            field_type = field_type.element
        if isinstance(field_type, NullableStruct):
            field_type = field_type.struct
        if isinstance(field_type, StructOf):
            yield from arrays_of(field_type)


@cache
def has_records(type_: StructOf) -> bool:
    """Whether a message carries record batches, which are not copied."""
    elements = [array.element for array in arrays_of(type_)]
    structs = [each for each in (type_, *elements) if isinstance(each, StructOf)]
    return any(not ANY_RECORDS.isdisjoint(each.types) for each in structs)


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
