"""A saved exchange: what went over a connection, as a text file that people read and edit.

    # millrace exchange
    # Hello request v0 #0
    > 0000001d 4d52 0012 ...
    # Hello response v0 #0
    < 000000d1 4d52 8012 ...

`>` is what the client sent and `<` what came back, one frame to a line, in order, as hex; spaces
do not matter, and what begins with `#` is for people. Knows no connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

TITLE = "# millrace exchange"
Direction = Literal[">", "<"]


@dataclass(frozen=True, slots=True)
class Passed:
    """Bytes that passed: whole frames as a rule, but raw bytes may be anything."""

    direction: Direction
    data: bytes
    remark: str = ""


class ExchangeError(ValueError):
    """Text that is no saved exchange; `line` counts from 1."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line


def write_exchange(passed: Iterable[Passed]) -> Iterator[str]:
    """The lines of a file."""
    yield TITLE
    for one in passed:
        if one.remark:
            yield f"# {one.remark}"
        yield f"{one.direction} {one.data.hex(' ', 4)}"


def read_exchange(text: str) -> list[Passed]:
    """What a file holds. Raises `ExchangeError`."""
    passed: list[Passed] = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        direction = stripped[0]
        if direction not in "<>":
            raise ExchangeError("begins with neither `>` nor `<` nor `#`", number)
        try:
            data = bytes.fromhex(stripped[1:])
        except ValueError:
            raise ExchangeError("is not hex", number) from None
        passed.append(Passed(">" if direction == ">" else "<", data))
    return passed
