"""`--json`: the result of a command as one JSON value in a line.

Owns the flag and the line. `docs/json-output.md` has the value of each command. Errors are lines on
stderr with `--json` too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", "-J", help="Print JSON.")]


def print_json(value: object) -> None:
    """Prints the value. Characters beyond ASCII are escapes, so that none can control a terminal.

    Numbers that JSON lacks raise `ValueError`.
    """
    print(json.dumps(value, allow_nan=False))


def print_objects(keys: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints a list of objects, one for each row."""
    print_json([dict(zip(keys, row, strict=True)) for row in rows])
