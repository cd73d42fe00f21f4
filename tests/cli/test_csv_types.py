"""`millrace produce -f csv`: cells with types, and headers and rows that are no table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.errors import ConfigError
from millrace_cli.exits import Exit, InputError
from millrace_cli.formats.csv_rows import CsvRows
from millrace_cli.formats.csv_types import ColumnTypes, Inference, conversion_of, parse_types
from millrace_cli.formats.input_format import Format, Reader
from millrace_cli.formats.input_notes import InputNotes

if TYPE_CHECKING:
    from tests.cli.conftest import Millrace


def encoded(kind: str, *cells: str, nulls: tuple[str, ...] = ()) -> tuple[list[str], list[str]]:
    """The JSON of each cell of a column, and the notes on them."""
    notes = InputNotes()
    encode = ColumnTypes({"c": kind}, frozenset(nulls)).encoder(["c"], notes, "in.csv")
    rows = [encode(number, [cell]) for number, cell in enumerate(cells, 2)]
    assert all(row.startswith('{"c": ') for row in rows)
    return [row[len('{"c": ') : -1] for row in rows], notes.lines()


@pytest.mark.parametrize(
    ("kind", "cell", "literal"),
    [
        ("long", "5", "5"),
        ("long", "007", "7"),
        ("long", "", "null"),
        ("long", "NA", "null"),
        ("double", "1.50", "1.50"),
        ("double", ".5", "0.5"),
        ("double", "+5.", "5"),
        ("double", "NaN", '"NaN"'),
        ("boolean", "TRUE", "true"),
        ("decimal(5,2)", "1.5", "1.5"),
        ("date", "2013-01-31", '"2013-01-31"'),
        ("timestamp", "2013-01-31T10:00:00Z", '"2013-01-31T10:00:00Z"'),
        ("string", "5", '"5"'),
        ("string", "", '""'),
        ("string", "NA", "null"),
    ],
)
def test_a_cell_becomes_json_of_its_type(kind: str, cell: str, literal: str) -> None:
    assert encoded(kind, cell, nulls=("NA",)) == ([literal], [])


def test_a_cell_that_does_not_fit_is_sent_as_text_and_noted_with_its_line() -> None:
    cells, notes = encoded("integer", "1", "one", "2.5", "3000000000", "2")
    assert cells == ["1", '"one"', '"2.5"', '"3000000000"', "2"]
    assert notes == [
        "c does not fit integer, and is sent as text: 3 times, first in in.csv line 3, 'one'"
    ]


@given(st.text(), st.sampled_from(["long", "double", "decimal(9,3)", "boolean", "timestamp"]))
def test_what_is_sent_reads_back_as_the_cell_says(cell: str, kind: str) -> None:
    from millrace._json_cells import UNFIT, parsed

    ((literal,), notes) = encoded(kind, cell)
    conversion = conversion_of(kind)
    if literal == "null":
        assert cell == ""
        return
    sent = parsed(f"[{literal}]".encode(errors="surrogatepass"))[0]
    assert conversion(sent) == conversion(cell)
    assert (conversion(cell) is UNFIT) == bool(notes)


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "-5", "NA", ""], "long"),
        (["1", "2.5"], "double"),
        (["9223372036854775808"], "double"),
        (["007"], "string"),
        (["+5"], "string"),
        (["true", "FALSE"], "boolean"),
        (["true", "1"], "string"),
        (["2013-01-31", "2013-02-01"], "date"),
        (["2013-01-31", "2013-02-01T10:00:00Z"], "timestamp"),
        (["1", "2013-02-01"], "string"),
        (["NaN"], "string"),
        (["", "NA"], "string"),
    ],
)
def test_a_column_is_of_the_narrowest_type_that_fits_all_cells(cells: list[str], kind: str) -> None:
    inference = Inference(["NA"])
    for cell in cells:
        inference.add(["c"], [cell])
    assert inference.kinds() == {"c": kind}


@pytest.mark.parametrize(
    "types", ["a array<int>", "a struct<b: int>", "a", "a nope", "a int, a int"]
)
def test_types_that_no_cell_can_have_are_refused(types: str) -> None:
    with pytest.raises(ConfigError, match="--types: "):
        parse_types(types)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"a,b,a\n1,2,3\n", "in.csv line 1 names two columns 'a'; rename one of them"),
        (b"a,,c\n1,2,3\n", "in.csv line 1 names the columns, and column 2 has no name"),
        (b"a, \n1,2\n", "column 2 has no name"),
        (b"a,b\n1,2\n1,2,3\n", "in.csv line 3 has 3 fields, and the header 2"),
        (b'a,b\n"1\n1",2\n1\n', "in.csv line 4 has 1 field, and the header 2"),
        (b"a,b\n1,2\n1,\xff\n", "in.csv line 3 is not UTF-8"),
    ],
)
def test_what_is_no_table_is_refused_with_its_line(text: bytes, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        list(CsvRows("in.csv").read(text.removesuffix(b"\n").split(b"\n"), 1))
    assert sentence in str(caught.value)


def read(text: bytes, notes: InputNotes | None = None) -> list[int] | None:
    reader = Reader("in", Format.JSON, timestamp_field="t", notes=notes)
    return reader.read(text.split(b"\n"), 1).timestamps_ms


@pytest.mark.parametrize("value", [b"-1", b'"1969-12-31"', b'"-5"', b"-0.5e3"])
def test_a_time_before_1970_is_refused_with_its_line(value: bytes) -> None:
    with pytest.raises(InputError, match=r"^in line 2 t: .* is before 1970, and no record has"):
        read(b'{"t": 0}\n{"t": ' + value + b"}")


@pytest.mark.parametrize(
    ("value", "matter"),
    [
        (b"1357034400", "is in 1970 to 1973"),
        (b'"20130101"', "is in 1970 to 1973"),
        (b"9999999999999999", "is after the year 2100"),
    ],
)
def test_a_number_that_is_hardly_in_milliseconds_is_noted(value: bytes, matter: str) -> None:
    notes = InputNotes()
    assert read(b'{"t": 1357034400000}\n{"t": ' + value + b"}", notes) is not None
    (line,) = notes.lines()
    assert line.startswith(f"t {matter}") and "first in in line 2" in line


def test_a_time_in_milliseconds_or_iso_is_not_noted() -> None:
    notes = InputNotes()
    assert read(b'{"t": 1357034400000}\n{"t": "1970-01-01T00:00:01Z"}\n{"t": 0}', notes) == [
        1357034400000,
        1000,
        0,
    ]
    assert notes.lines() == []


def test_a_byte_order_mark_is_no_part_of_the_first_value_and_nan_is_no_json() -> None:
    reader = Reader("in", Format.JSON)
    assert reader.read([b'\xef\xbb\xbf{"a": 1}', b'{"a": 2}'], 1).values == [
        b'{"a": 1}',
        b'{"a": 2}',
    ]
    for constant in (b"NaN", b"-Infinity"):
        with pytest.raises(InputError, match=r"line 1 is not JSON: .* is no JSON; null, or"):
            Reader("in", Format.JSON).read([b'{"a": %s}' % constant], 1)


CSV = "\ufeffid,temp,at,note\n1,39.02,2013-01-01,NA\n2,NA,2013-01-02,x\n3,warm,2013-01-03,\n"


def test_a_typed_csv_is_sent_as_json_with_types_and_says_what_did_not_fit(
    millrace: Millrace, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "weather.csv"
    file.write_text(CSV)
    types = ("--types", "temp double, id int", "--null", "NA", "--key", "note")
    sent = millrace("produce", topic, "-f", "csv", *types, "-p", "0", str(file))
    assert sent.exit_code == 0, sent.stderr
    consumed = millrace("consume", topic, "--json")
    records = [json.loads(line) for line in consumed.stdout.splitlines()]
    assert [record["value"] for record in records] == [
        '{"id": 1, "temp": 39.02, "at": "2013-01-01", "note": null}',
        '{"id": 2, "temp": null, "at": "2013-01-02", "note": "x"}',
        '{"id": 3, "temp": "warm", "at": "2013-01-03", "note": ""}',
    ]
    assert [record["key"] for record in records] == [None, "x", ""]
    note = "temp does not fit double, and is sent as text: 1 time, first in"
    assert f"{note} {file} line 4, 'warm'" in " ".join(sent.stderr.split())


def test_types_are_found_in_the_whole_of_the_files_and_printed(
    millrace: Millrace, topic: str, tmp_path: Path
) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    first.write_text("id,temp,at\n1,39,2013-01-01\n")
    second.write_text("id,temp,at\n2,39.5,2013-01-02T10:00:00Z\n")
    sent = millrace("produce", topic, "-f", "csv", "--infer", "-p", "0", str(first), str(second))
    assert sent.exit_code == 0, sent.stderr
    assert "types: id long, temp double, at timestamp" in sent.stderr
    consumed = millrace("consume", topic)
    assert consumed.stdout.splitlines() == [
        '{"id": 1, "temp": 39, "at": "2013-01-01"}',
        '{"id": 2, "temp": 39.5, "at": "2013-01-02T10:00:00Z"}',
    ]


@pytest.mark.parametrize(
    ("flags", "code", "sentence"),
    [
        (("-f", "csv", "--infer"), Exit.USAGE, "--infer reads the input twice"),
        (("-f", "json", "--infer"), Exit.USAGE, "are for --format csv"),
        (("-f", "csv", "--types", "temp array<int>"), Exit.USAGE, "temp is array"),
        (("-f", "csv", "--types", "tmep int"), Exit.INPUT, "has no column 'tmep'"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(
    millrace: Millrace, topic: str, flags: tuple[str, ...], code: Exit, sentence: str
) -> None:
    sent = millrace.process("produce", topic, *flags, stdin=b"id,temp\n1,2\n")
    assert sent.returncode == code
    assert sentence in " ".join(sent.stderr.decode().replace("│", " ").split())
