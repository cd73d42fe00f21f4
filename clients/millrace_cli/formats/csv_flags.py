"""The flags of `produce` for CSV, as types of columns: given, or found in the whole of the files.

Owns the pass over the files that finds them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from millrace.errors import ConfigError
from millrace_cli.exits import Exit, InputError, ended
from millrace_cli.formats.csv_rows import CsvRows
from millrace_cli.formats.csv_types import ColumnTypes, Inference, parse_types
from millrace_cli.formats.input_format import Format


def csv_flags(
    format_: Format,
    types: str,
    *,
    infer: bool,
    null_texts: Sequence[str],
    files: Sequence[Path | str],
) -> ColumnTypes:
    """The types of the columns of all inputs. Raises `typer.BadParameter` and `typer.Exit`.

    Types that are found are printed to stderr, in the form that `--types` and `--schema` take.
    """
    if (types or infer or null_texts) and format_ is not Format.CSV:
        raise typer.BadParameter("--types, --infer and --null are for --format csv")
    names = [str(file) for file in files]
    if infer and (not names or "-" in names):
        raise typer.BadParameter("--infer reads the input twice, so name files: stdin is gone then")
    try:
        given = parse_types(types) if types else {}
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None
    kinds = given
    if infer:
        try:
            kinds = {**_inferred(names, null_texts), **given}
        except (InputError, OSError) as error:
            raise typer.Exit(ended(Exit.INPUT, error)) from None
        print(f"types: {_ddl(kinds)}", file=sys.stderr)
    return ColumnTypes(kinds, frozenset(null_texts))


def _inferred(names: Sequence[str], null_texts: Sequence[str]) -> dict[str, str]:
    from millrace_cli.formats.input_lines import READ_BYTES, Lines

    inference = Inference(null_texts)
    for name in names:
        lines, rows = Lines(quoted=True), CsvRows(name)
        with Path(name).open("rb") as file:
            while chunk := file.read(READ_BYTES):
                _add(inference, rows, lines.count + 1, lines.feed(chunk))
        _add(inference, rows, lines.count + 1, lines.end())
    return inference.kinds()


def _add(inference: Inference, rows: CsvRows, first_line: int, lines: list[bytes]) -> None:
    for _, row in rows.read(lines, first_line):
        inference.add(rows.header, row)


def _ddl(kinds: dict[str, str]) -> str:
    return ", ".join(f"{_quoted(name)} {kind}" for name, kind in kinds.items())


def _quoted(name: str) -> str:
    is_plain = name.isascii() and name.replace("_", "a").isalnum()
    return name if is_plain else "`" + name.replace("`", "``") + "`"
