"""Valid inputs, from which the mutations start."""

from __future__ import annotations

import functools
import uuid
from typing import Any

from millrace_protocol.codec import encode
from millrace_protocol.primitives import ArrayOf
from millrace_protocol.records import Codec, encode_batch, read_header, seal
from millrace_protocol.schema import Message, NullableStruct, StructOf, codec
from millrace_protocol.spec.examples import EXAMPLES

FRAMES = tuple(EXAMPLES.values())


def batches() -> tuple[bytes, ...]:
    """Batches of every codec and of every kind of record."""
    values = [b"one", None, b"", b"x" * 70, b"three" * 20]
    keys = [b"k", None, b"", b"y" * 64, None]
    headers: list[list[tuple[str, bytes | None]]] = [
        [("h", b"v"), ("h", None)],
        [],
        [("name", b"w" * 70)],
        [],
        [],
    ]
    plain = bytes(encode_batch(values, keys=keys, headers=headers, timestamps_ms=1_000))
    made = [plain]
    made += [
        bytes(encode_batch([b"v" * 20] * 8, timestamps_ms=list(range(8)), codec=c)) for c in Codec
    ]
    made.append(bytes(encode_batch([b"a"] * 70, timestamps_ms=5)))
    made.append(_changed(plain, last_offset_delta=9))
    made.append(_changed(plain, attributes=8))
    made.append(_changed(plain, attributes=32))
    made.append(plain + made[1])
    return tuple(made)


def _changed(batch: bytes, **fields: int) -> bytes:
    made = bytearray(batch)
    header = read_header(made)
    for name, value in fields.items():
        setattr(header, name, value)
    made[:61] = header.pack()
    seal(made)
    return bytes(made)


def resealed(data: bytes) -> bytes:
    """The same bytes with a length and a CRC that fit: what is behind those checks is reached."""
    if len(data) < 61:
        return data
    made = bytearray(data)
    header = read_header(made)
    header.batch_length = len(made) - 12
    header.magic = 2
    made[:61] = header.pack()
    seal(made)
    return bytes(made)


def body(cls: type[Message], version: int = 0) -> bytes:
    """A body of a message with elements in every array."""
    return encode(_message(codec(cls, version)), version)


def _message(struct: StructOf) -> Message:
    values = (_value(type_) for type_ in struct.types)
    return struct.cls(**dict(zip(struct.names, values, strict=True)))


@functools.cache
def _batch() -> bytes:
    return bytes(encode_batch([b"value"], timestamps_ms=1_000))


def _value(type_: Any) -> Any:
    if isinstance(type_, ArrayOf):
        return (_value(type_.element), _value(type_.element))
    if isinstance(type_, StructOf):
        return _message(type_)
    if isinstance(type_, NullableStruct):
        return _message(type_.struct)
    name = type_.spec_name
    if name == "boolean":
        return True
    if name == "uuid":
        return uuid.UUID(int=7)
    if "string" in name:
        return "clicks"
    if "records" in name or "bytes" in name:
        return _batch()
    return 1
