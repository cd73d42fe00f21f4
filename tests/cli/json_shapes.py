"""The JSON of each command as `docs/json-output.md` has it, and the comparison with its output.

Owns the reading of the page. The page's examples are the shapes: names and types, not values.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "json-output.md"
_SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.M | re.S)
_EXAMPLE = re.compile(r"^```json\n(.*?)^```", re.M | re.S)
_EXCEPTION = re.compile(r"^\| `([a-z -]+)` \| .+ \|$", re.M)
_BY_NAME = {"configs", "assignment", "labels", "faults"}
"""Objects with a key for each name; their values have one shape."""


def documented() -> dict[tuple[str, ...], Any]:
    """The example of each command."""
    found = {}
    for title, text in _SECTION.findall(PAGE.read_text()):
        (example,) = _EXAMPLE.findall(text)
        found[tuple(title.split())] = json.loads(example)
    return found


def exceptions() -> set[tuple[str, ...]]:
    """The commands that the page says to have no `--json`."""
    return {tuple(name.split()) for name in _EXCEPTION.findall(PAGE.read_text())}


def check_shape(wanted: Any, found: Any, where: str = "$") -> None:
    """Fails at the first key or type that differs. Null is of every type."""
    if wanted is None or found is None or where.endswith("].value"):
        return
    if isinstance(wanted, dict):
        assert isinstance(found, dict), f"{where}: {found!r} is not an object"
        if where.rpartition(".")[2] in _BY_NAME:
            wanted = dict.fromkeys(found, next(iter(wanted.values())))
        assert list(wanted) == list(found), f"{where}: other keys"
        for key, value in wanted.items():
            check_shape(value, found[key], f"{where}.{key}")
    elif isinstance(wanted, list):
        assert isinstance(found, list), f"{where}: {found!r} is not a list"
        for index, value in enumerate(found if wanted else ()):
            check_shape(wanted[0], value, f"{where}[{index}]")
    else:
        kinds = (int, float) if isinstance(wanted, float) else type(wanted)
        assert isinstance(found, kinds), f"{where}: {found!r} is not like {wanted!r}"
        assert isinstance(wanted, bool) == isinstance(found, bool), f"{where}: {found!r}"
