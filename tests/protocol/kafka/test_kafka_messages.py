"""Kafka's messages have the bytes that another implementation, kio, reads and writes."""

from __future__ import annotations

import dataclasses
import importlib
import io
import re
import typing
import uuid
from types import NoneType
from typing import Any, get_args, get_origin

import kio.serial
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_protocol.codec import Decoder, Encoder, decode, encode
from millrace_protocol.errors import WireError
from millrace_protocol.kafka.apis import KAFKA_APIS
from millrace_protocol.kafka.headers import RequestHeader, ResponseHeader
from millrace_protocol.primitives import INT8, INT16, INT32, INT64, UINT16
from millrace_protocol.schema import Message, decode_declared, encode_declared, wire_fields


def _module(name: str) -> str:
    return re.sub("(?<!^)(?=[A-Z])", "_", name).lower()


MESSAGES: tuple[tuple[type[Message], str, range], ...] = (
    *(
        (cls, f"{_module(api.name)}.v{{}}.{kind}", range(api.min_version, api.max_version + 1))
        for api in KAFKA_APIS.values()
        for kind, cls in (("request", api.request), ("response", api.response))
    ),
    (RequestHeader, "request_header.v{}.header", range(1, 3)),
    (ResponseHeader, "response_header.v{}.header", range(2)),
)
CASES = [
    pytest.param(cls, module, version, id=f"{cls.__name__}-{version}")
    for cls, module, versions in MESSAGES
    for version in versions
]
BITS = {INT8: 7, UINT16: 15, INT16: 15, INT32: 31, INT64: 63}
ERRORS = st.sampled_from((-1, 0, 3, 42, 100))
"""Codes that kio knows; it has an enumeration."""


def values(cls: type[Message], version: int) -> st.SearchStrategy[Message]:
    """Messages that a version can carry: what it does not have is left at its default."""
    hints = typing.get_type_hints(cls)
    return st.builds(
        cls,
        **{
            name: _field(
                name, field.type, hints[name], version, may_be_null=_is_nullable(field, version)
            )
            for name, field in wire_fields(cls, version)
            if field.tag is None or _is_flexible(version)
        },
    )


_flexible_since = 0


def _is_flexible(version: int) -> bool:
    return version >= _flexible_since


def _is_nullable(field: Any, version: int) -> bool:
    since = field.nullable_since
    is_so = getattr(field.type, "nullable", False)
    return is_so or field.tag is not None or (since is not None and since <= version)


def _field(
    name: str, type_: Any, hint: Any, version: int, *, may_be_null: bool
) -> st.SearchStrategy[Any]:
    hints = [each for each in get_args(hint) if each is not NoneType] or [hint]
    kind = hint if get_origin(hint) is tuple else hints[0]
    found: st.SearchStrategy[Any]
    if get_origin(kind) is tuple:
        found = _array(name, type_, get_args(kind)[0], version)
    elif name == "error_code":
        found = ERRORS
    elif kind is int:
        # kio takes some of the largest for times that its types do not hold.
        found = st.integers(-(type_ is not UINT16), (1 << min(BITS[type_], 40)) - 1)
    elif kind is bool:
        found = st.booleans()
    elif kind is float:
        found = st.floats(allow_nan=False)
    elif kind is uuid.UUID:
        found = st.uuids()
    elif kind is str:
        found = st.text(max_size=200)
    elif isinstance(kind, type) and issubclass(kind, Message):
        found = values(kind, version)
    else:
        found = st.binary(max_size=300)
    is_null = may_be_null and (NoneType in get_args(hint))
    return st.none() | found if is_null else found


def _array(name: str, type_: Any, hint: Any, version: int) -> st.SearchStrategy[Any]:
    element = getattr(type_, "element", None)
    return st.lists(_field("", element, hint, version, may_be_null=False), max_size=4).map(tuple)


def oracle(cls: type[Message], module: str, version: int) -> Any:
    """kio's class of a message."""
    found = importlib.import_module(f"kio.schema.{module.format(version)}")
    return getattr(found, cls.__name__)


def drawn(cls: type[Message], version: int) -> st.SearchStrategy[Message]:
    global _flexible_since
    since = cls.flexible_since
    _flexible_since = 1 << 30 if since is None else since
    return values(cls, version)


@pytest.mark.parametrize(("cls", "module", "version"), CASES)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_another_implementation_reads_and_writes_the_same_bytes(
    cls: type[Message], module: str, version: int, data: st.DataObject
) -> None:
    message = data.draw(drawn(cls, version))
    body = encode(message, version)
    assert body == encode_declared(message, version)
    encoder = Encoder(message, version)
    while not encoder.step(3):
        pass
    assert b"".join(encoder.parts) == body
    assert decode(cls, body, version) == message == decode_declared(cls, body, version)
    decoder = Decoder(cls, body, version)
    while not decoder.step(3):
        pass
    assert decoder.result == message
    theirs = oracle(cls, module, version)
    read, size = kio.serial.entity_reader(theirs)(body, 0)
    assert size == len(body)
    out = io.BytesIO()
    kio.serial.entity_writer(theirs)(out, read)
    assert out.getvalue() == body


@pytest.mark.parametrize(("cls", "module", "version"), CASES)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_a_body_that_is_cut_or_changed_is_read_or_refused_with_a_position(
    cls: type[Message], module: str, version: int, data: st.DataObject
) -> None:
    body = bytearray(encode(data.draw(drawn(cls, version)), version))
    if body and data.draw(st.booleans()):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    else:
        del body[data.draw(st.integers(0, len(body))) :]
    outcomes = [_outcome(read, cls, bytes(body), version) for read in (decode, decode_declared)]
    assert outcomes[0] == outcomes[1]


def _outcome(read: Any, cls: type[Message], body: bytes, version: int) -> object:
    try:
        return read(cls, body, version)
    except WireError as error:
        return str(error)


def test_every_field_that_a_version_lacks_has_a_default() -> None:
    for cls, _, versions in MESSAGES:
        for version in versions:
            known = {name for name, _ in wire_fields(cls, version)}
            for field in dataclasses.fields(cls):
                assert field.name in known or field.default is not dataclasses.MISSING
