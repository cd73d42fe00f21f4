"""A saved exchange: the frames of a connection, as a text file for people to read and edit.

    # millrace exchange
    # Hello request v0 #0
    > 0000001d 4d52 0012 ...
    # Hello response v0 #0
    < 000000d1 4d52 8012 ...

`>` marks a frame of the client and `<` a frame of the broker: one frame in a line, in order, as
hex. Spaces are ignored, and so are lines that begin with `#`. Knows no connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

TITLE = "# millrace exchange"
Direction = Literal[">", "<"]


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes in one direction: a whole frame, or any bytes from `raw`."""

    direction: Direction
    data: bytes
    remark: str = ""


class ExchangeError(ValueError):
    """The text is not a saved exchange; `line` counts from 1."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line


def write_exchange(transfers: Iterable[Transfer]) -> Iterator[str]:
    """The lines of a file."""
    yield TITLE
    for one in transfers:
        if one.remark:
            yield f"# {one.remark}"
        yield f"{one.direction} {one.data.hex(' ', 4)}"


def read_exchange(text: str) -> list[Transfer]:
    """The transfers in a file. Raises `ExchangeError`."""
    transfers: list[Transfer] = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        direction = stripped[0]
        if direction not in "<>":
            raise ExchangeError("does not begin with `>`, `<` or `#`", number)
        try:
            data = bytes.fromhex(stripped[1:])
        except ValueError:
            raise ExchangeError("is not hex", number) from None
        transfers.append(Transfer(">" if direction == ">" else "<", data))
    return transfers
