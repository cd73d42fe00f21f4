"""Bytes by declaration: walks a `construct` declaration over a buffer, field by field.

Owns the names (`partitions[0].topic`) and what a broken field looks like. The layouts come from
`messages/` alone, so this cannot disagree with the codec.
"""

from __future__ import annotations

from typing import Any

from millrace_protocol.dissect.batches import dissect_batches
from millrace_protocol.dissect.span import DEFAULT_LIMITS, Buffer, Limits, Span
from millrace_protocol.errors import ErrorCode, WireError
from millrace_protocol.primitives import (
    ANY_RECORDS,
    COMPACT_LENGTH,
    INT8,
    UVARINT,
    ArrayOf,
    BodyStream,
    Elements,
    WireType,
)
from millrace_protocol.schema import (
    Message,
    NullableStruct,
    StructOf,
    TaggedField,
    body_elements,
    codec,
)


def dissect_body(
    cls: type[Message],
    version: int,
    data: Buffer,
    start: int,
    end: int,
    *,
    prefix: str = "",
    limits: Limits = DEFAULT_LIMITS,
) -> tuple[list[Span], bool]:
    """The fields of a message body in `data[start:end]`, and whether it is whole and well formed.

    Positions count from the start of `data`. The last span of a body that is not carries the
    fault. Never raises for bad bytes.
    """
    walk = _Walk(data, start, end, limits, elements=body_elements(cls))
    spans = walk.struct(codec(cls, version), prefix)
    if not walk.broken and walk.position < end:
        spans.append(walk.fault("", walk.position, f"bytes follow the {cls.__name__}"))
    return spans, not walk.broken


class _Walk:
    """One pass over one body. After `broken` is set nothing more is read."""

    def __init__(
        self, data: Buffer, start: int, end: int, limits: Limits, *, elements: Elements
    ) -> None:
        self._data = memoryview(data)
        self._stream = BodyStream(self._data[start:end], elements)
        self._start = start
        self._end = end
        self._limits = limits
        self.broken = False

    @property
    def position(self) -> int:
        return self._start + self._stream.tell()

    def fault(self, name: str, position: int, reason: str) -> Span:
        self.broken = True
        return Span(min(position, self._end), self._end, name, "?", fault=reason)

    def struct(self, type_: StructOf, prefix: str) -> list[Span]:
        spans: list[Span] = []
        for name, field_type in zip(type_.names, type_.types, strict=True):
            spans += self._field(field_type, f"{prefix}{name}")
            if self.broken:
                return spans
        if type_.tags is not None:
            spans += self._tags(type_.tags, prefix)
        return spans

    def _field(self, type_: WireType, name: str) -> list[Span]:
        if isinstance(type_, ArrayOf):
            return self._array(type_, name)
        if isinstance(type_, StructOf):
            return self._element(type_, name)
        if isinstance(type_, NullableStruct):
            return self._nullable_struct(type_, name)
        return self._leaf(type_, name)

    def _nullable_struct(self, type_: NullableStruct, name: str) -> list[Span]:
        spans = self._leaf(INT8, f"{name}.marker")
        if not self.broken and spans[0].value != -1:
            spans += self._element(type_.struct, name)
        return spans

    def _tags(self, tags: tuple[TaggedField, ...], prefix: str) -> list[Span]:
        """The tagged fields behind the others of a struct (KIP-482)."""
        known = {each.tag: each for each in tags}
        spans = self._leaf(UVARINT, f"{prefix}tags.count")
        count = 0 if self.broken else spans[0].value
        for index in range(int(str(count))):
            for what in ("tag", "size"):
                spans += self._leaf(UVARINT, f"{prefix}tags[{index}].{what}")
                if self.broken:
                    return spans
            tag, size = (int(str(each.value)) for each in spans[-2:])
            field = known.get(tag)
            start = self.position
            if start + size > self._end:
                spans.append(self.fault(f"{prefix}tags[{index}]", start, "it ends behind the body"))
                return spans
            if field is None:
                self._stream.seek(self._stream.tell() + size)
                spans.append(Span(start, start + size, f"{prefix}tags[{index}]", "unknown field"))
                continue
            spans += self._field(field.type, f"{prefix}{field.name}")
            if not self.broken and self.position != start + size:
                spans.append(
                    self.fault(f"{prefix}{field.name}", self.position, "its size is another")
                )
            if self.broken:
                return spans
        return spans

    def _array(self, type_: ArrayOf, name: str) -> list[Span]:
        start = self.position
        try:
            count = type_.read_count(self._stream)
        except WireError as error:
            return self._broken_leaf(type_, name, start, error)
        if count < 0:
            return [Span(start, self.position, name, type_.spec_name, None)]
        spans = [Span(start, self.position, f"{name}.count", "int32", count)]
        for index in range(count):
            if index == self._limits.elements_max:
                spans.append(self._skip(type_.element, f"{name}[{index}...]", count - index))
                break
            spans += self._element(type_.element, f"{name}[{index}]")
            if self.broken:
                break
        return [Span(start, self.position, name, type_.spec_name, children=tuple(spans))]

    def _element(self, type_: WireType, name: str) -> list[Span]:
        if not isinstance(type_, StructOf):
            return self._leaf(type_, name)
        start = self.position
        children = self.struct(type_, f"{name}.")
        return [Span(start, self.position, name, type_.spec_name, children=tuple(children))]

    def _skip(self, type_: WireType, name: str, count: int) -> Span:
        start = self.position
        try:
            for _ in range(count):
                type_.parse_stream(self._stream)
        except WireError as error:
            return self.fault(name, self._start + error.position, error.reason)
        return Span(start, self.position, name, type_.spec_name, note=f"{count} more not shown")

    def _leaf(self, type_: WireType, name: str) -> list[Span]:
        start = self.position
        try:
            value: Any = type_.parse_stream(self._stream)
        except WireError as error:
            return self._broken_leaf(type_, name, start, error)
        end = self.position
        if type_ in ANY_RECORDS and value is not None:
            return [self._records(type_, name, end - len(value), start, end)]
        return [Span(start, end, name, type_.spec_name, value, note=_note(name, value))]

    def _records(self, type_: WireType, name: str, first: int, start: int, end: int) -> Span:
        """Batches from `first` on, behind their length."""
        batches = dissect_batches(self._data, first, end, prefix=name, limits=self._limits)
        length_type = "int32" if first - start == 4 else COMPACT_LENGTH.spec_name
        length = Span(start, first, f"{name}.size", length_type, end - first)
        return Span(start, end, name, type_.spec_name, children=(length, *batches))

    def _broken_leaf(self, type_: WireType, name: str, start: int, error: WireError) -> list[Span]:
        """What of the field is good, and then, from the exact byte on, why the rest is not."""
        position = min(self._start + error.position, self._end)
        fault = self.fault(name, position, error.reason)
        if position == start:
            return [fault]
        return [Span(start, position, name, type_.spec_name, note="begins here"), fault]


def _note(name: str, value: object) -> str:
    if name.endswith("error_code") and isinstance(value, int):
        return error_name(value)
    return ""


def error_name(code: int) -> str:
    """The name of an error code, or that it has none."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return "a code without a name"
