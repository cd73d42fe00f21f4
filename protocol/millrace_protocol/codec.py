"""Message bodies to bytes and back, at once or in steps.

Owns the order of attempts: the generated function of a message (`generated`) first; for bytes or
values that it does not take, the one that names the fault. The layouts are `messages/`; the frame
is `framing`.
"""

from __future__ import annotations

import struct
import sys
from functools import cache
from typing import Generic, TypeVar

from millrace_protocol.body_errors import trailing_bytes
from millrace_protocol.generated import readers, step_readers, step_writers, writers
from millrace_protocol.primitives import ArrayOf, Sized, WireType
from millrace_protocol.reader_source import Buffer as Buffer
from millrace_protocol.schema import (
    Message,
    NullableStruct,
    StructOf,
    arrays_of,
    codec,
    encode_declared,
    has_records,
)
from millrace_protocol.source_text import ENTRY_BYTES_LOG2, FORMATS, format_size

M = TypeVar("M", bound=Message)

_UNFIT = (struct.error, TypeError, AttributeError, ValueError)
"""Raised by a writer for a value that its type cannot carry; the declared codec names the fault."""
_COUNT = struct.Struct(">i")


def decode(cls: type[M], body: Buffer, version: int, *, may_go_on: bool = False) -> M:
    """The message in a whole body; with `may_go_on` more may follow it.

    `records` fields are views of `body`: they keep it alive, and change when it does. Raises
    `WireError` when the body is short, broken or too long.
    """
    try:
        message: M = readers[cls, version](body)
    except (ValueError, IndexError, struct.error):
        decoder = Decoder(cls, body, version, may_go_on=may_go_on)
        decoder.step(sys.maxsize)
        return decoder.result
    return message


def decode_leading(cls: type[M], data: Buffer, version: int, *, position: int = 0) -> tuple[M, int]:
    """The message that starts at `position` of `data`, and where it ends.

    Raises `WireError`, with positions in `data`, when it is short or broken.
    """
    steps = step_readers[cls, version](memoryview(data), position, len(data))
    next(steps)
    try:
        steps.send(sys.maxsize)
    except StopIteration as end:
        found: tuple[M, int] = end.value
        return found
    raise AssertionError("a reader yields only when its entries are used up")


def encode(message: Message, version: int) -> bytes:
    """The body of a message. Raises `ValueError` for a value its type cannot carry."""
    try:
        return b"".join(writers[type(message), version](message))
    except _UNFIT:
        return encode_declared(message, version)


def encode_parts(message: Message, version: int) -> list[Buffer]:
    """The body of a message in parts; `records` are parts of their own and not copied.

    Anything with a length may stand for the `records`, a slice of a file for example. Raises
    `ValueError` for a value its type cannot carry.
    """
    try:
        parts = writers[type(message), version](message)
    except _UNFIT:
        return [encode_declared(message, version)]
    return parts if has_records(codec(type(message), version)) else [b"".join(parts)]


def entry_count(cls: type[Message], body: Buffer, version: int) -> int:
    """An upper bound of the entries that decoding `body` takes; reads at most one count.

    An element of an array is an entry, and so are each 512 bytes that are decoded.
    """
    size = len(body)
    position, element_size, is_copied = _bounds(codec(cls, version))
    elements = size // element_size if element_size else 0
    if position is not None and position + _COUNT.size <= size:
        elements = min(elements, max(0, _COUNT.unpack_from(body, position)[0]))
    return elements + (size >> ENTRY_BYTES_LOG2 if is_copied else 0)


class Decoder(Generic[M]):
    """Decodes one body in steps, so that other work can be done between them.

        decoder = Decoder(FetchRequest, body, 0)
        while not decoder.step(100):
            await scheduler.yield_()
        request = decoder.result

    `body` must not change before the last step. With `may_go_on` more may follow the message.
    """

    def __init__(
        self, cls: type[M], body: Buffer, version: int, *, may_go_on: bool = False
    ) -> None:
        self._cls = cls
        self._may_go_on = may_go_on
        self._size = len(body)
        self._steps = step_readers[cls, version](memoryview(body), 0, self._size)
        self._result: M | None = None
        next(self._steps)

    def step(self, entries_max: int) -> bool:
        """Decodes at most `entries_max` entries; whether the body is decoded.

        An element of an array is an entry, and one more for each 512 bytes that it takes. Raises
        `WireError` when the body is short, broken or too long.
        """
        try:
            self._steps.send(entries_max)
        except StopIteration as end:
            message, position = end.value
            if position != self._size and not self._may_go_on:
                left = self._size - position
                raise trailing_bytes(self._cls.__name__, left, position) from None
            self._result = message
        return self._result is not None

    @property
    def result(self) -> M:
        """The message, after the last step."""
        if self._result is None:
            raise RuntimeError("the body is not decoded: call step until it returns True")
        return self._result


class Encoder:
    """Encodes one message in steps; `parts` are its body after the last."""

    def __init__(self, message: Message, version: int) -> None:
        self.parts: list[Buffer] = []
        self._message = message
        self._version = version
        self._steps = step_writers[type(message), version](message, self.parts)
        next(self._steps)

    def step(self, entries_max: int) -> bool:
        """Encodes at most `entries_max` entries, as `Decoder` counts them; whether that was all.

        `records` are not copied and count nothing. Raises `ValueError` for a value its type
        cannot carry.
        """
        try:
            self._steps.send(entries_max)
        except StopIteration:
            return True
        except _UNFIT:
            self.parts = [encode_declared(self._message, self._version)]
            return True
        return False


@cache
def _bounds(type_: StructOf) -> tuple[int | None, int, bool]:
    """Of a message: the position of its only array, the least bytes of an element, and whether
    its body is copied as it is decoded.

    The position is None where there are more arrays, or where it differs from body to body; the
    least bytes are 0 without an array.
    """
    arrays = list(arrays_of(type_))
    size = min((_size_min(array.element) for array in arrays), default=0)
    position = None
    if len(arrays) == 1:
        before = type_.types[: type_.types.index(arrays[0])] if arrays[0] in type_.types else ()
        is_found = arrays[0] in type_.types and not arrays[0].is_compact
        if is_found and all(each in FORMATS for each in before):
            position = sum(map(_size_min, before))
    return position, size, not has_records(type_)


def _size_min(type_: WireType) -> int:
    """The least bytes that a value takes."""
    if isinstance(type_, NullableStruct):
        return 1
    if isinstance(type_, StructOf):
        return sum(map(_size_min, type_.types)) + (type_.tags is not None)
    if isinstance(type_, ArrayOf):
        return 1 if type_.is_compact else 4
    if isinstance(type_, Sized):
        return 1 if type_.is_compact else format_size(FORMATS[type_.length])
    return format_size(FORMATS[type_])
