"""Generators over the codec's steps."""

from collections.abc import Generator
from typing import TypeVar

from millrace_protocol.codec import Buffer, Decoder, Encoder
from millrace_protocol.schema import Message

M = TypeVar("M", bound=Message)


def decode_in_pieces(cls: type[M], body: Buffer, version: int) -> Generator[None, None, M]:
    """A message, with a `yield` after each step."""
    decoder = Decoder(cls, body, version)
    while not decoder.step(100):
        yield
    return decoder.result


def encode_in_pieces(message: Message, version: int) -> Generator[None, None, list[Buffer]]:
    """The parts of a body, with a `yield` after each step."""
    encoder = Encoder(message, version)
    while not encoder.step(100):
        yield
    return encoder.parts
