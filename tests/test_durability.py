"""docs/durability.md names existing tests in every row."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "durability.md").read_text("utf-8")


def rows() -> list[str]:
    """The rows of all tables, without their heads."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", PAGE, re.M):
        found += table.splitlines()[2:]
    return found


def test_every_row_names_a_test_that_proves_it() -> None:
    assert len(rows()) >= 14
    for row in rows():
        assert re.search(r"`test_\w+`", row.split("|")[-2]), row


def test_every_test_that_is_named_is_there() -> None:
    source = "\n".join(path.read_text("utf-8") for path in TESTS.rglob("test_*.py"))
    there = set(re.findall(r"^ *(?:async )?def (test_\w+)\(", source, re.M))
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert named <= there, f"docs/durability.md names {sorted(named - there)}"


def test_every_bug_that_is_said_to_be_planted_is_there() -> None:
    section = PAGE.split("## Bugs that others have had")[1].split("\n## ")[0]
    named = {name for name in re.findall(r"`([a-z_]+)`", section) if not name.startswith("test_")}
    assert len(named) > 15
    source = "\n".join(path.read_text("utf-8") for path in TESTS.rglob("mutants.py"))
    listed = set(re.findall(r"^    (\w+),$", source, re.M))
    assert named <= listed, f"docs/durability.md names {sorted(named - listed)}"


def test_the_commands_are_modules_that_can_be_run() -> None:
    for module in re.findall(r"python -m (tests[.\w]*)", PAGE):
        path = TESTS.parent.joinpath(*module.split("."))
        assert (path / "__main__.py").exists() or path.with_suffix(".py").exists()
