"""Message bodies to bytes and back, by the fastest way there is for each.

Owns the choice between the codec of all messages (`compiled`) and that of a few (`hot`); both
give and take the same, so callers need not know. The layouts are `messages/`; the frame is
`framing`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar, cast

from millrace_protocol import hot
from millrace_protocol.compiled import PIECE_ELEMENTS, PIECE_READ_ELEMENTS, decode_body, encode_body
from millrace_protocol.compiled import decode_in_pieces as _decode_in_pieces
from millrace_protocol.compiled import encode_in_pieces as _encode_in_pieces
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


def encode_parts(message: Message, version: int) -> list[hot.Buffer]:
    """The body of a message in parts; `records` fields are parts of their own, and not copied.

    Anything with a length may be the value of a `records` field, a slice of a file for example.
    Raises `ValueError` for a value its type cannot carry.
    """
    if isinstance(message, ProduceRequest) and version == 0:
        return hot.produce_request_parts(message)
    if isinstance(message, FetchResponse) and version == 0:
        return hot.fetch_response_parts(message)
    return [encode(message, version)]


def entry_count(cls: type[Message], body: hot.Buffer, version: int) -> int:
    """An upper bound of the array elements that decoding `body` loops over; reads no element."""
    if cls is ProduceRequest:
        if len(body) < hot.PRODUCE_COUNT_END:
            return 0
        return max(0, min(hot.produce_count(body), len(body)))
    return len(body) // 2


class Decoder(Generic[M]):
    """Decodes one body in steps, so that a long one does not hold up the caller.

        decoder = Decoder(FetchRequest, body, 0)
        while not decoder.step(100):
            await scheduler.yield_()
        request = decoder.result

    `body` must not change before the last step.
    """

    def __init__(self, cls: type[M], body: hot.Buffer, version: int) -> None:
        self._work = decode_in_pieces(cls, body, version)
        self._result: M | None = None

    def step(self, entries_max: int) -> bool:
        """Decodes about `entries_max` array elements; whether the body is decoded.

        Raises `WireError` when the body is short, broken or too long.
        """
        try:
            for _ in range(0, entries_max, PIECE_READ_ELEMENTS):
                next(self._work)
        except StopIteration as end:
            self._result = end.value
        return self._result is not None

    @property
    def result(self) -> M:
        """The message, after the last step."""
        if self._result is None:
            raise RuntimeError("the body is not decoded: step until it returns True")
        return self._result


class Encoder:
    """Encodes one message in steps; `parts` is its body after the last."""

    def __init__(self, message: Message, version: int) -> None:
        self._work = _encode_in_pieces(message, version)
        self.parts: list[hot.Buffer] = []

    def step(self, entries_max: int) -> bool:
        """Encodes about `entries_max` array elements; whether the message is encoded.

        Raises `ValueError` for a value its type cannot carry.
        """
        try:
            for _ in range(0, entries_max, PIECE_ELEMENTS):
                next(self._work)
        except StopIteration as end:
            self.parts = end.value
            return True
        return False
