"""A span: some bytes, what they are called and what they mean.

Owns the tree that every dissector makes and `render` prints. Knows nothing of formats.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes `[start, end)` of a buffer, with a meaning.

    `start <= end`, and the children lie within, in order, if they count in the same buffer.
    `buffer` is given where positions start to count in other bytes than the parent's: by the
    outermost span, and by one that holds what was decompressed. `fault` is the problem here,
    in one sentence; nothing behind a fault can be trusted.
    """

    start: int
    end: int
    name: str
    type: str
    value: object = None
    note: str = ""
    fault: str = ""
    children: tuple[Span, ...] = ()
    buffer: Buffer | None = None

    def leaves(self) -> Iterator[Span]:
        """The spans without children, in order."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    def find(self, name: str) -> Span | None:
        """The first span of this name in the tree, itself included."""
        if self.name == name:
            return self
        found = (child.find(name) for child in self.children)
        return next((span for span in found if span is not None), None)

    def faults(self) -> Iterator[Span]:
        """The spans with a fault, in order."""
        if self.fault:
            yield self
        for child in self.children:
            yield from child.faults()


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a dissector shows. What is beyond is counted and skipped, not decoded."""

    elements_max: int = 200
    """Elements of one array."""
    records_max: int = 100
    """Records of one batch."""
    batches_max: int = 1_000
    """Batches of one `records` field."""
    decompressed_bytes_max: int = 16 << 20
    """Bytes one batch may decompress to."""


DEFAULT_LIMITS = Limits()


class ValueDissector(Protocol):
    """Explains the value of a record whose topic is known: `data[start:end]`."""

    def __call__(
        self, data: Buffer, start: int, end: int, *, name: str, limits: Limits
    ) -> Span: ...
