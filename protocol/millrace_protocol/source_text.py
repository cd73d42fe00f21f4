"""Python source of a generated function, and the names that it uses.

Owns indentation, and the `struct` layouts that generated code names by their format: `unpack_hii`
reads an int16 and two int32.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from millrace_protocol.primitives import (
    BOOLEAN,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT16,
    UINT32,
    UUID,
    WireType,
)

FORMATS: dict[WireType, str] = {
    INT8: "b",
    INT16: "h",
    INT32: "i",
    INT64: "q",
    UINT16: "H",
    UINT32: "I",
    FLOAT64: "d",
    BOOLEAN: "B",
    UUID: "16s",
}
"""The `struct` format of each type of fixed width."""
NUMBERS = FORMATS.keys() - {BOOLEAN, UUID}
"""An array of them is read and written by one call."""
ENTRY_BYTES_LOG2 = 9
"""An element counts as one entry of a step, and as one more for each 512 bytes that it takes."""


def format_size(formats: str) -> int:
    """The bytes of a `struct` format."""
    return struct.calcsize(">" + formats)


class SourceText:
    """The lines of one function; `name` is its name, `namespace` has the globals that it uses."""

    def __init__(self, signature: str) -> None:
        self.name = signature.partition("(")[0]
        self.namespace: dict[str, Any] = {}
        self._lines = [f"def {signature}:"]
        self._depth = 1

    def add(self, *lines: str) -> None:
        """Appends lines to the current block."""
        self._lines += ["    " * self._depth + line for line in lines]

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Appends `header` and makes the lines that follow its block."""
        self.add(header)
        self._depth += 1
        yield
        self._depth -= 1

    def use(self, name: str, value: Any) -> str:
        """Makes `value` a global of the function."""
        if self.namespace.setdefault(name, value) != value:
            raise TypeError(f"two globals of a generated function have the name {name}")
        return name

    def unpack(self, formats: str) -> str:
        """A function that reads `formats`."""
        return self.use(f"unpack_{formats}", _layout(formats).unpack_from)

    def pack(self, formats: str) -> str:
        """A function that writes `formats`."""
        return self.use(f"pack_{formats}", _layout(formats).pack)

    def __str__(self) -> str:
        return "\n".join([*self._lines, ""])


@functools.cache
def _layout(formats: str) -> struct.Struct:
    return struct.Struct(">" + formats)
