"""Message bodies to bytes and back, by the fastest way there is for each.

Owns the choice between the codec of all messages (`compiled`) and that of a few (`hot`); both
give and take the same, so callers need not know. The layouts are `messages/`; the frame is
`framing`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar, cast

from millrace_protocol import hot
from millrace_protocol.compiled import decode_body, encode_body
from millrace_protocol.compiled import decode_in_pieces as _decode_in_pieces
from millrace_protocol.messages.fetch import FetchRequest, FetchResponse
from millrace_protocol.messages.produce import ProduceRequest, ProduceResponse
from millrace_protocol.schema import Message

M = TypeVar("M", bound=Message)

_ENCODERS: dict[tuple[type[Message], int], Callable[[Any], bytes]] = {
    (ProduceRequest, 0): hot.encode_produce_request,
    (ProduceResponse, 0): hot.encode_produce_response,
    (FetchRequest, 0): hot.encode_fetch_request,
    (FetchResponse, 0): hot.encode_fetch_response,
}
_DECODERS: dict[tuple[type[Message], int], Callable[[hot.Buffer], Message]] = {
    (ProduceRequest, 0): hot.decode_produce_request,
    (ProduceResponse, 0): hot.decode_produce_response,
    (FetchRequest, 0): hot.decode_fetch_request,
    (FetchResponse, 0): hot.decode_fetch_response,
}


def encode(message: Message, version: int) -> bytes:
    """The body of a message. Raises `ValueError` for a value its type cannot carry."""
    encoder = _ENCODERS.get((type(message), version))
    return encode_body(message, version) if encoder is None else encoder(message)


def decode(cls: type[M], body: hot.Buffer, version: int) -> M:
    """The message in a whole body.

    `records` fields of the hot messages are views of `body`: they keep it alive, and change when
    it does. Raises `WireError` when the body is short, broken or too long.
    """
    decoder = _DECODERS.get((cls, version))
    return decode_body(cls, body, version) if decoder is None else cast(M, decoder(body))


def decode_in_pieces(cls: type[M], body: hot.Buffer, version: int) -> Generator[None, None, M]:
    """The same with a `yield` now and then; but records of a produce, which cost nothing, at once.

    `body` must not change before the end.
    """
    if cls is ProduceRequest:
        return decode(cls, body, version)
    return (yield from _decode_in_pieces(cls, body, version))
