"""What a terminal shows: names that cannot change it, and tables that fit."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from millrace.records import Record
from millrace_cli import table
from millrace_cli.exits import Exit
from millrace_cli.formats.envelope import json_format
from millrace_cli.formats.record_text import record_format
from millrace_cli.visible_text import visible

if TYPE_CHECKING:
    from tests.cli.conftest import Millrace

HOSTILE = "a\u202eb\x1b[31mc\x9b\u2028\U000e0001é 漢"


@given(st.text())
def test_visible_text_has_no_character_that_a_terminal_obeys(text: str) -> None:
    assert not set(visible(text)) & {"\x1b", "\x9b", "\n", "\u202e", "\u2028", "\x7f", "\u200f"}
    if text.isprintable():
        assert visible(text) == text


def test_records_on_a_terminal_are_escaped() -> None:
    record = Record.of("t", 0, 0, 0, HOSTILE.encode(), HOSTILE.encode())
    shown = record_format("%k", escaped=True)(record).decode()
    assert shown == r"a\u202eb\x1b[31mc\x9b\u2028\U000e0001é 漢"
    line = json_format(escaped=True)(record).decode()
    assert line.rstrip("\n").isprintable()
    assert json.loads(line)["value"] == HOSTILE


def test_an_error_repeats_a_name_without_control_characters(millrace: Millrace) -> None:
    done = millrace.process("consume", f"topic{HOSTILE}")
    assert done.returncode == Exit.REFUSED
    assert done.stderr.decode().rstrip("\n").isprintable()
    done = millrace.process("cluster", "info", HOSTILE)
    assert done.returncode == Exit.USAGE
    assert r"a\u202eb\x1b[31mc" in done.stderr.decode()
    assert done.stderr.decode().replace("\n", "").isprintable()


def shown(monkeypatch: pytest.MonkeyPatch, width: int, *names: str) -> list[str]:
    """Lines of a table with those names on a terminal of `width` cells."""
    terminal = io.StringIO()
    monkeypatch.setattr(table, "is_terminal", lambda: True)
    monkeypatch.setattr(
        "rich.console.Console",
        lambda: Console(file=terminal, width=width, color_system=None, force_terminal=True),
    )
    table.show(("topic", "partition #", "committed #", "lag #"), [(n, 1, 22, 333) for n in names])
    lines = terminal.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    return [" ".join(line.split()) for line in lines if line.strip()]


def test_a_wide_terminal_shows_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "a-name-of-thirty-characters-00"
    assert shown(monkeypatch, 80, name, "b")[2:] == [f"{name} 1 22 333", "b 1 22 333"]


def test_a_narrower_one_shows_names_in_lines_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "a-name-of-thirty-characters-00"
    lines = shown(monkeypatch, 50, name, "b")
    assert lines[:2] == ["topic", "partition committed lag"]
    assert lines[3:] == [name, "1 22 333", "b", "1 22 333"]


def test_a_long_name_is_folded_and_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "n" * 249
    lines = shown(monkeypatch, 80, name, "b")
    assert "".join(line.removesuffix(" 1 22 333") for line in lines[2:-1]) == name
    assert lines[-1] == "b 1 22 333"


def test_rows_with_equal_first_cells_have_one_line_above_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "a-name-of-thirty-characters-00"
    assert shown(monkeypatch, 40, name, name)[3:] == [name, "1 22 333", "1 22 333"]


def test_a_narrow_one_shows_a_row_as_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    row = ["partition 1", "committed 22", "lag 333"]
    assert shown(monkeypatch, 16, "ab", "b") == ["topic ab", *row, "topic b", *row]
    assert shown(monkeypatch, 24, "a-name-of-twenty-000")[-3:] == row


def test_one_row_that_does_not_fit_is_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, 40, "a-name-of-twenty-000")[0] == "topic a-name-of-twenty-000"


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1), st.integers(20, 99))
def test_no_width_loses_a_character(names: list[str], width: int) -> None:
    terminal = io.StringIO()
    cells = [[visible(name), "1", "22", "333"] for name in names]
    columns = ("topic", "partition #", "committed #", "lag #")
    console = Console(file=terminal, width=width, color_system=None)
    console.print(table.layout(columns, cells, "", width))
    assert all(cell_len(line) <= width for line in terminal.getvalue().splitlines())
    printed = "".join(terminal.getvalue().split())
    for name in names:
        for character in set("".join(visible(name).split())):
            assert character in printed
