"""The results of `millrace spark`, as a table, lines or JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from millrace_cli.json_output import print_json, print_objects
from millrace_cli.table import show

if TYPE_CHECKING:
    from millrace_spark.pipeline import ImportSummary
    from millrace_spark.pipeline.aggregate_run import Statistics
    from millrace_spark.pipeline.export_run import ExportSummary


def show_import(done: ImportSummary, *, as_json: bool) -> None:
    """Prints the summary of an import."""
    if as_json:
        print_json(
            {
                "group": done.group,
                "records": done.records,
                "bytes": done.size_bytes,
                "files": done.files,
                "seconds": round(done.elapsed_s, 3),
                "lag": done.lag,
                "corrupt_records": done.corrupt.records,
                "corrupt_fields": done.corrupt.fields,
            }
        )
        return
    show(
        (
            *("group", "records #", "bytes #", "files #", "seconds #", "records/s #", "lag #"),
            *("corrupt #", "corrupt fields #"),
        ),
        [
            (
                done.group,
                done.records,
                done.size_bytes,
                done.files,
                f"{done.elapsed_s:.1f}",
                f"{done.records_per_s:.0f}",
                done.lag,
                done.corrupt.records,
                done.corrupt.fields,
            )
        ],
    )


def show_export(done: ExportSummary, *, as_json: bool) -> None:
    """Prints the summary of an export."""
    if as_json:
        seconds = round(done.elapsed_s, 3)
        print_json({"topic": done.topic, "records": done.records, "seconds": seconds})
        return
    show(
        ("topic", "records #", "seconds #", "records/s #"),
        [(done.topic, done.records, f"{done.elapsed_s:.1f}", f"{done.records_per_s:.0f}")],
    )


def show_statistics(found: Statistics, *, as_json: bool) -> None:
    """Prints the rows of a query."""
    if as_json:
        print_objects(found.columns, _values(found))
        return
    show([f"{name} #" if name in found.numeric else name for name in found.columns], found.rows)


def _values(found: Statistics) -> Iterator[list[object]]:
    """The rows with numbers for texts, where JSON has such a number."""
    is_numeric = [name in found.numeric for name in found.columns]
    for row in found.rows:
        yield [
            _number(cell) if numeric and cell is not None else cell
            for cell, numeric in zip(row, is_numeric, strict=True)
        ]


def _number(text: str) -> int | float | str:
    with suppress(ValueError):
        return int(text)
    number = float(text)
    return number if math.isfinite(number) else text
