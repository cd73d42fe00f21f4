"""Source of the functions that encode one version of a message, made from its declaration.

There are two for each message. `encode` appends the body to a list of parts; `encode_steps` is a
generator that does the same and yields whenever the entries it was sent are used up. Both pack a
run of fixed-width fields, together with the length of the string or array behind them, by one
`struct` call. For a value that its type cannot carry they raise what `struct` or the value raises.
`python -m millrace_protocol.generated FetchRequest` prints them.
"""

from __future__ import annotations

import struct

from millrace_protocol.primitives import (
    ANY_RECORDS,
    ARRAY_COUNT_MAX,
    BOOLEAN,
    INT8,
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
    codec,
    has_records,
    tagged_bytes,
)
from millrace_protocol.source_text import ENTRY_BYTES_LOG2, FORMATS, NUMBERS, SourceText
from millrace_protocol.uvarint import uvarint

_PACKED = {BOOLEAN: "bool({})", UUID: "{}.bytes"}
"""What is packed of a value that is not its own number."""


def writer_source(cls: type[Message], version: int, *, in_steps: bool) -> SourceText:
    """The function that encodes `cls` to parts of its body.

    `records` are parts of their own and not copied. What stands between them is joined to one
    part; in a message without records, the caller joins the parts.
    """
    return _Writer(codec(cls, version), in_steps=in_steps).text


class _Writer:
    def __init__(self, type_: StructOf, *, in_steps: bool) -> None:
        self._in_steps = in_steps
        self._joins = in_steps or has_records(type_)
        self._formats = ""
        self._packed: list[str] = []
        self._pieces: list[str] = []
        self._copied: list[str] = []
        self.text = SourceText("encode_steps(message, parts)" if in_steps else "encode(message)")
        if in_steps:
            self.text.add("entries = yield")
        else:
            self.text.add("parts = []")
        if self._joins:
            self.text.add("pieces = []")
        self._struct(type_, "message", "")
        self._flush()
        if self._joins:
            with self.text.block("if pieces:"):
                self.text.add("parts.append(b''.join(pieces))")
        if not in_steps:
            self.text.add("return parts")

    def _struct(self, type_: StructOf, owner: str, prefix: str) -> None:
        for name, field_type in zip(type_.names, type_.types, strict=True):
            self._field(field_type, f"{owner}.{name}", prefix + name)
        if type_.tags is not None:
            self._tags(type_, owner)

    def _tags(self, type_: StructOf, owner: str) -> None:
        """The tagged fields; mostly all have their defaults, and there are none."""
        self._end_run()
        if not type_.tags:
            self._pieces.append("b'\\0'")
            return
        cls = type_.cls.__name__
        are_defaults = " and ".join(
            f"{owner}.{tag.name} is {self.text.use(f'default_{cls}_{tag.name}', tag.default)}"
            for tag in type_.tags
        )
        tags = self.text.use(f"tags_{cls}", type_.tags)
        written = f"{self.text.use('tagged_bytes', tagged_bytes)}({tags}, {owner})"
        self._pieces.append(f"b'\\0' if {are_defaults} else {written}")

    def _field(self, type_: WireType, value: str, variable: str) -> None:
        if type_ in FORMATS:
            self._pack(FORMATS[type_], _PACKED.get(type_, "{}").format(value))
        elif isinstance(type_, Sized):
            self._sized(type_, value, f"{variable}_data")
        elif isinstance(type_, ArrayOf):
            self._array(type_, value, f"{variable}_array")
        elif isinstance(type_, StructOf):
            self._struct(type_, value, f"{variable}_")
        elif isinstance(type_, NullableStruct):
            self._nullable_struct(type_, value, variable)
        else:
            raise TypeError(f"a field of type {type_.spec_name} has no writer")

    def _nullable_struct(self, type_: NullableStruct, value: str, variable: str) -> None:
        marker = FORMATS[INT8]
        self._flush()
        with self.text.block(f"if {value} is None:"):
            self._pack(marker, "-1")
            self._flush()
        with self.text.block("else:"):
            self._pack(marker, "1")
            self._struct(type_.struct, value, f"{variable}_")
            self._flush()

    def _pack_length(self, letter: str, length: str, *, is_compact: bool) -> None:
        if is_compact:
            self._end_run()
            self._pieces.append(f"{self.text.use('uvarint', uvarint)}({length} + 1)")
        else:
            self._pack(letter, length)

    def _pack(self, letter: str, value: str) -> None:
        self._formats += letter
        self._packed.append(value)

    def _end_run(self) -> None:
        if self._packed:
            self._pieces.append(f"{self.text.pack(self._formats)}({', '.join(self._packed)})")
            self._formats = ""
            self._packed.clear()

    def _flush(self) -> None:
        """Appends the pieces up to here."""
        self._end_run()
        target = "pieces" if self._joins else "parts"
        if len(self._pieces) == 1:
            self.text.add(f"{target}.append({self._pieces[0]})")
        elif self._pieces:
            self.text.add(f"{target} += ({', '.join(self._pieces)})")
        self._pieces.clear()

    def _sized(self, type_: Sized, value: str, data: str) -> None:
        text, length = self.text, f"len({data})"
        encoded = f"{value}.encode()" if isinstance(type_, String) else f"bytes({value})"
        if type_.nullable:
            length = f"{data}_size"
            with text.block(f"if {value} is None:"):
                text.add(f"{data}, {length} = b'', -1")
            with text.block("else:"):
                kept = value if type_ in ANY_RECORDS else encoded
                text.add(f"{data} = {kept}", f"{length} = len({data})")
        elif type_ in ANY_RECORDS:
            text.add(f"{data} = {value}")
        else:
            text.add(f"{data} = {encoded}")
        self._pack_length(FORMATS.get(type_.length, ""), length, is_compact=type_.is_compact)
        if type_ in ANY_RECORDS:
            self._flush()
            text.add(f"parts += (b''.join(pieces), {data})", "pieces.clear()")
        else:
            self._end_run()
            self._pieces.append(data)
            self._copied.append(f"len({data})")

    def _array(self, type_: ArrayOf, value: str, array: str) -> None:
        text, count = self.text, f"len({array})"
        text.add(f"{array} = {value}")
        if type_.nullable:
            count = f"{array}_count"
            with text.block(f"if {array} is None:"):
                text.add(f"{array}, {count} = (), -1")
            with text.block("else:"):
                text.add(f"{count} = len({array})")
        with text.block(f"if {count} > {ARRAY_COUNT_MAX}:"):
            text.add("raise ValueError")
        self._pack_length("i", count, is_compact=type_.is_compact)
        if type_.element in NUMBERS:
            pack = text.use("pack_numbers", struct.pack)
            self._end_run()
            self._pieces.append(f"{pack}(f'>{{len({array})}}{FORMATS[type_.element]}', *{array})")
            return
        self._flush()
        before, self._copied = self._copied, []
        with text.block(f"for {array}_element in {array}:"):
            if isinstance(type_.element, StructOf):
                self._struct(type_.element, f"{array}_element", f"{array}_")
            else:
                self._field(type_.element, f"{array}_element", f"{array}_element")
            self._flush()
            if self._in_steps:
                self._count_entry()
        self._copied = before

    def _count_entry(self) -> None:
        text = self.text
        size = f" + ({' + '.join(self._copied)} >> {ENTRY_BYTES_LOG2})" if self._copied else ""
        text.add(f"entries -= 1{size}")
        with text.block("if entries <= 0:"):
            text.add("parts.append(b''.join(pieces))", "pieces.clear()", "entries = yield")
