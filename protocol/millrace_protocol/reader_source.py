"""Source of the functions that decode one version of a message, made from its declaration.

There are two for each message. `decode` is the fast one: it trusts the bytes, and raises
`ValueError` or `struct.error` for a broken body without a reason. `decode_steps` is a generator
that checks every field, raises the `WireError` of a broken one, and yields whenever the entries
it was sent are used up.

Both read a run of fixed-width fields, together with the length of the string or array behind
them, by one `struct` call. `python -m millrace_protocol.generated FetchRequest` prints them.
"""

from __future__ import annotations

import dataclasses
import struct
import uuid

from millrace_protocol import body_errors
from millrace_protocol.errors import WireError
from millrace_protocol.primitives import (
    ANY_RECORDS,
    BOOLEAN,
    INT8,
    INT32,
    TAGS_MAX,
    UUID,
    ArrayOf,
    Sized,
    String,
    WireType,
)
from millrace_protocol.schema import (
    Message,
    NullableStruct,
    StructOf,
    arrays_of,
    codec,
    has_records,
)
from millrace_protocol.source_text import (
    ENTRY_BYTES_LOG2,
    FORMATS,
    NUMBERS,
    SourceText,
    format_size,
)
from millrace_protocol.uvarint import read_uvarint

_LOCALS = (
    "body",
    "data",
    "position",
    "start",
    "end",
    "entries",
    "elements_left",
    "error",
    "tag_start",
)
Buffer = bytes | bytearray | memoryview


def reader_source(cls: type[Message], version: int, *, in_steps: bool) -> SourceText:
    """The function that decodes `cls`.

    The fast one takes a whole body. The one in steps takes a message that starts at a position,
    and returns it and the position behind it.
    """
    return _Reader(cls, version, in_steps=in_steps).text


@dataclasses.dataclass(slots=True)
class _RunField:
    """A fixed-width field, or the length of another, and the local variable for it."""

    name: str
    type: WireType
    variable: str


class _Reader:
    def __init__(self, cls: type[Message], version: int, *, in_steps: bool) -> None:
        type_ = codec(cls, version)
        self._cls = cls
        self._in_steps = in_steps
        # A string is decoded faster from bytes than from a memoryview.
        self._is_view = in_steps or has_records(type_)
        self._counts_elements = len(list(arrays_of(type_))) > 1
        self._run: list[_RunField] = []
        self._element_start = ""
        self._variables = set(_LOCALS)
        self.text = SourceText("decode_steps(data, position, end)" if in_steps else "decode(body)")
        if in_steps:
            self.text.add("entries = yield")
        else:
            self.text.add(f"data = {'memoryview' if self._is_view else 'bytes'}(body)")
            self.text.add("position = 0")
        if self._counts_elements:
            self.text.add(f"elements_left = {cls.elements_max}")
        message = self._struct(type_, "", "")
        if in_steps:
            self.text.add(f"return {message}, position")
        else:
            self._check("position != len(data)", "ValueError")
            self.text.add(f"return {message}")

    def _struct(self, type_: StructOf, prefix: str, path: str) -> str:
        """Reads the fields; the expression that makes the message of them."""
        variables = [self._variable(prefix + name) for name in type_.names]
        for name, field_type, variable in zip(type_.names, type_.types, variables, strict=True):
            self._field(field_type, name, variable, path)
        self._end_run(path)
        cls = self.text.use(type_.cls.__name__, type_.cls)
        tagged = [] if type_.tags is None else self._tags(type_, prefix, path)
        declared = [field.name for field in dataclasses.fields(type_.cls)]
        # By position as far as that goes, which takes half the time: up to a field of another
        # version that stands between those of this one.
        values = [
            variable if name == at_position else f"{name}={variable}"
            for name, at_position, variable in zip(type_.names, declared, variables, strict=False)
        ]
        return f"{cls}({', '.join([*values, *tagged])})"

    def _field(self, type_: WireType, name: str, variable: str, path: str) -> None:
        if type_ in FORMATS:
            self._run.append(_RunField(name, type_, variable))
        elif isinstance(type_, Sized):
            self._sized(type_, name, variable, path)
        elif isinstance(type_, ArrayOf):
            self._array(type_, name, variable, path)
        elif isinstance(type_, StructOf):
            self._end_run(path)
            value = self._struct(type_, f"{variable}_", f"{path}{name}.")
            self.text.add(f"{variable} = {value}")
        elif isinstance(type_, NullableStruct):
            self._nullable_struct(type_, name, variable, path)
        else:
            raise TypeError(f"a field of type {type_.spec_name} has no reader")

    def _nullable_struct(self, type_: NullableStruct, name: str, variable: str, path: str) -> None:
        marker = self._variable(f"{variable}_marker")
        self._run.append(_RunField(name, INT8, marker))
        self._end_run(path)
        with self.text.block(f"if {marker} < 0:"):
            self.text.add(f"{variable} = None")
        with self.text.block("else:"):
            value = self._struct(type_.struct, f"{variable}_", f"{path}{name}.")
            self.text.add(f"{variable} = {value}")

    def _uvarint(self, variable: str, where: str) -> None:
        """Reads an unsigned varint at `position`; `start` is behind it."""
        text = self.text
        if self._in_steps:
            read = text.use("uvarint_at", uvarint_at)
            text.add(f"{variable}, start = {read}(data, position, end, {where})")
            return
        text.add(f"{variable} = data[position]", "start = position + 1")
        with text.block(f"if {variable} > 127:"):
            text.add(
                f"{variable}, start = {text.use('read_uvarint', read_uvarint)}(data, position)"
            )

    def _tags(self, type_: StructOf, prefix: str, path: str) -> list[str]:
        """Reads the tagged fields; the keyword arguments of those that are known."""
        text, where = self.text, _literal(path.rstrip("."))
        count = self._variable(f"{prefix}tags")
        self._uvarint(count, where)
        limit = f"tags_max={TAGS_MAX}"
        wrong = self._error("too_many_tags", where, count, limit, "position=position")
        variables = {each.tag: self._variable(prefix + each.name) for each in type_.tags or ()}
        for tag, name, _, default in type_.tags or ():
            default_name = text.use(f"default_{type_.cls.__name__}_{name}", default)
            text.add(f"{variables[tag]} = {default_name}")
        with text.block(f"if {count}:"):
            self._check(f"{count} > {TAGS_MAX}", wrong)
            text.add("position = start")
            with text.block(f"for _ in range({count}):"):
                self._tag(type_, variables, prefix, path, where)
        with text.block("else:"):
            text.add("position = start")
        return [f"{each.name}={variables[each.tag]}" for each in type_.tags or ()]

    def _tag(
        self, type_: StructOf, variables: dict[int, str], prefix: str, path: str, where: str
    ) -> None:
        text = self.text
        tag, size = self._variable(f"{prefix}tag"), self._variable(f"{prefix}tag_size")
        tag_start, tag_end = self._variable(f"{prefix}tag_at"), self._variable(f"{prefix}tag_end")
        text.add(f"{tag_start} = position")
        self._uvarint(tag, where)
        text.add("position = start")
        self._uvarint(size, where)
        text.add("position = start", f"{tag_end} = position + {size}")
        wrong = self._error("bad_tag_size", where, tag, size, tag_start)
        self._check(f"{tag_end} > {'end' if self._in_steps else 'len(data)'}", wrong)
        for number, (known, name, field_type, _) in enumerate(type_.tags or ()):
            with text.block(f"{'el' * bool(number)}if {tag} == {known}:"):
                self._field(field_type, name, variables[known], path)
                self._end_run(path)
                self._check(f"position != {tag_end}", wrong)
        text.add(f"position = {tag_end}")

    def _variable(self, name: str) -> str:
        """A variable that no other field has, named after its field."""
        while name in self._variables:
            name += "_"
        self._variables.add(name)
        return name

    def _end_run(self, path: str) -> None:
        if self._run:
            self.text.add(f"position += {self._read_run(path)}")

    def _read_run(self, path: str) -> int:
        """Reads the run of fields at `position`, which stays; the size of the run."""
        text, run = self.text, tuple(self._run)
        self._run.clear()
        formats = "".join(FORMATS[field.type] for field in run)
        size = format_size(formats)
        error = "ValueError"
        if self._in_steps:
            names = text.use(f"run_{run[0].variable}", tuple((f.name, f.type) for f in run))
            where = _literal(path)
            error = f"{text.use('run_error', run_error)}({names}, {where}, data, position, end)"
            self._check(f"end - position < {size}", error)
        targets = ", ".join(field.variable for field in run)
        text.add(f"{targets}{',' * (len(run) == 1)} = {text.unpack(formats)}(data, position)")
        for field in run:
            name = field.variable
            if field.type is BOOLEAN:
                self._check(f"{name} > 1", error)
                text.add(f"{name} = {name} == 1")
            elif field.type is UUID:
                text.add(f"{name} = {text.use('UUID', uuid.UUID)}(bytes={name})")
        return size

    def _check(self, condition: str, error: str) -> None:
        with self.text.block(f"if {condition}:"):
            self.text.add(f"raise {error}")

    def _error(self, name: str, *arguments: str) -> str:
        """A call of one of `body_errors`; the fast reader raises a bare `ValueError`."""
        if not self._in_steps:
            return "ValueError"
        return f"{self.text.use(name, getattr(body_errors, name))}({', '.join(arguments)})"

    def _length(self, type_: WireType, name: str, variable: str, path: str) -> str:
        """Adds the length of a field to the run, to end it."""
        variable = self._variable(variable)
        self._run.append(_RunField(name, type_, variable))
        return variable

    def _sized(self, type_: Sized, name: str, variable: str, path: str) -> None:
        text, where = self.text, _literal(path + name)
        type_name, at = repr(type_.spec_name), "position"
        if type_.is_compact:
            self._end_run(path)
            size = self._variable(f"{variable}_size")
            self._uvarint(size, where)
            text.add(f"{size} -= 1")
        else:
            size = self._length(type_.length, name, f"{variable}_size", path)
            text.add(f"start = position + {self._read_run(path)}")
            at = f"start - {format_size(FORMATS[type_.length])}"
        wrong = self._error("bad_length", where, type_name, size, at)
        if not type_.nullable:
            self._check(f"{size} < 0", wrong)
            self._value(type_, variable, size, where)
            return
        with text.block(f"if {size} < 0:"):
            self._check(f"{size} != -1", wrong)
            text.add("position = start", f"{variable} = None")
        with text.block("else:"):
            self._value(type_, variable, size, where)

    def _value(self, type_: Sized, variable: str, size: str, where: str) -> None:
        """Reads `size` bytes at `start`. A fast reader checks the end of the body behind them."""
        text = self.text
        text.add(f"position = start + {size}")
        if self._in_steps:
            values = (where, repr(type_.spec_name), f"size={size}", "left=end - start")
            self._check("position > end", self._error("short_value", *values, "position=start"))
            if type_ in ANY_RECORDS and self._element_start:
                text.add(f"{self._element_start} += {size}")
        value = "data[start:position]"
        if not isinstance(type_, String):
            if type_ not in ANY_RECORDS and self._is_view:
                value = f"bytes({value})"
            text.add(f"{variable} = {value}")
        elif not self._in_steps:
            value += ".tobytes()" if self._is_view else ""
            text.add(f"{variable} = {value}.decode()")
        else:
            with text.block("try:"):
                text.add(f"{variable} = str({value}, 'utf-8')")
            with text.block("except UnicodeDecodeError as error:"):
                text.add(f"raise {self._error('not_utf8', where, 'error', 'start')} from None")

    def _array(self, type_: ArrayOf, name: str, variable: str, path: str) -> None:
        text = self.text
        at = "position - 4"
        if type_.is_compact:
            self._end_run(path)
            count = self._variable(f"{variable}_count")
            self._uvarint(count, _literal(path + name))
            text.add(f"{count} -= 1")
            if self._in_steps:
                at = self._variable(f"{variable}_at")
                text.add(f"{at} = position")
            text.add("position = start")
        else:
            count = self._length(INT32, name, f"{variable}_count", path)
            self._end_run(path)
        if not type_.nullable:
            self._elements(type_.element, variable, count, path + name, at)
            return
        with text.block(f"if {count} == -1:"):
            text.add(f"{variable} = None")
        with text.block("else:"):
            self._elements(type_.element, variable, count, path + name, at)

    def _elements(self, element: WireType, variable: str, count: str, path: str, at: str) -> None:
        self._check_count(count, _literal(path), at)
        if element in NUMBERS:
            self._numbers(element, variable, count, path)
            return
        text = self.text
        index = self._variable(f"{variable}_index")
        outer_start, start = self._element_start, self._variable(f"{variable}_start")
        text.add(f"{variable} = []")
        with text.block(f"for {index if self._in_steps else '_'} in range({count}):"):
            if self._in_steps:
                self._element_start = start
                text.add(f"{start} = position")
            path = f"{path}[{{{index}}}]"
            if isinstance(element, StructOf):
                value = self._struct(element, f"{variable}_", f"{path}.")
            else:
                value = self._variable(f"{variable}_element")
                self._field(element, "", value, path)
                self._end_run(path)
            text.add(f"{variable}.append({value})")
            if self._in_steps:
                text.add(f"entries -= 1 + (position - {start} >> {ENTRY_BYTES_LOG2})")
                with text.block("if entries <= 0:"):
                    text.add("entries = yield")
        self._element_start = outer_start
        text.add(f"{variable} = tuple({variable})")

    def _check_count(self, count: str, where: str, at: str) -> None:
        limits = f"array_max={self._cls.array_max}, elements_max={self._cls.elements_max}"
        error = self._error(
            "bad_count", where, count, "left=end - position", limits, f"position={at}"
        )
        wrong = f"not 0 <= {count} <= {self._cls.array_max}"
        if self._in_steps:
            wrong += f" or {count} > end - position"
        if self._counts_elements:
            self.text.add(f"elements_left -= {count}")
            wrong += " or elements_left < 0"
        self._check(wrong, error)

    def _numbers(self, element: WireType, variable: str, count: str, path: str) -> None:
        """Reads an array of integers by one call."""
        text, letter = self.text, FORMATS[element]
        size = format_size(letter)
        if self._in_steps:
            whole = f"(end - position) // {size}"
            values = (f"f'{path}[{{{whole}}}]'", repr(element.spec_name), f"size={size}")
            error = self._error(
                "short_value",
                *values,
                f"left=(end - position) % {size}",
                f"position=position + {whole} * {size}",
            )
            self._check(f"{count} * {size} > end - position", error)
        unpack = text.use("unpack_from", struct.unpack_from)
        text.add(f"{variable} = {unpack}(f'>{{{count}}}{letter}', data, position)")
        text.add(f"position += {count} * {size}")


def uvarint_at(data: Buffer, position: int, end: int, field: str) -> tuple[int, int]:
    """An unsigned varint, and the position behind it. Raises `WireError`."""
    try:
        value, behind = read_uvarint(data, position)
    except (IndexError, ValueError):
        raise body_errors.bad_uvarint(field, position) from None
    if behind > end:
        raise body_errors.bad_uvarint(field, position)
    return value, behind


def run_error(
    fields: tuple[tuple[str, WireType], ...], path: str, data: Buffer, position: int, end: int
) -> WireError:
    """The error of the first field at `position` that is short, or that is no boolean."""
    for name, type_ in fields:
        size = format_size(FORMATS[type_])
        if end - position < size:
            return body_errors.short_value(
                path + name, type_.spec_name, size=size, left=end - position, position=position
            )
        if type_ is BOOLEAN and data[position] > 1:
            return body_errors.bad_boolean(path + name, data[position], position)
        position += size
    raise AssertionError(f"every field at {path} is whole")


def _literal(path: str) -> str:
    """Source of a field's path; the index of an element is a variable of the function."""
    return f"f{path!r}" if "{" in path else repr(path)
