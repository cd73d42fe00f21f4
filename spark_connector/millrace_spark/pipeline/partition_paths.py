"""Directories by the values of columns: `date=2026-01-31/hour=07/`, as Hive and Spark have them.

Owns the two columns made of the timestamp, the cutting of a batch by values, and the escaping of
values in names. Source: Spark's `ExternalCatalogUtils.escapePathName`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from millrace.errors import ConfigError
from millrace_spark.pipeline.errors import RecordUnfit

MADE = {"date": "%Y-%m-%d", "hour": "%H"}
"""Columns made of the timestamp, in UTC. An hour is one of a date."""
NULL = "__HIVE_DEFAULT_PARTITION__"
NAME_BYTES_MAX = 255
"""Longest name of a directory, by every file system of Linux."""
_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^") | {chr(code) for code in range(32)}


def partition_columns(wanted: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """The columns to make directories of.

    Raises `ConfigError` for one that is not there, and for one that is to be made where Spark
    would take it for a column that is.

    >>> partition_columns(["topic", "hour"], ["topic", "value"])
    ('topic', 'date', 'hour')
    """
    found: list[str] = []
    for name in wanted:
        if name not in MADE and name not in columns:
            raise ConfigError(
                f"--partition-by: no column {name!r}; there are {', '.join((*MADE, *columns))}"
                + ("" if "value" not in columns else ", and with --schema those of the values")
            )
        if name == "hour" and name not in columns and "date" not in found:
            found.append("date")
        if name not in found:
            found.append(name)
    for name in found:
        for column in columns:
            if column != name and column.lower() == name.lower():
                raise ConfigError(
                    f"--partition-by: {name} is made of the timestamp, and the field {column} "
                    f"would be hidden by it, since case is no difference to Spark; give {column}, "
                    "or call the field something else"
                )
    if found and not set(columns) - set(found):
        raise ConfigError("--partition-by: leave a column for the files")
    return tuple(found)


def cut(
    batch: pa.RecordBatch, columns: Sequence[str], *, time: str = "timestamp"
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows by directory, in their order; without the columns that the directory tells.

    `time` is the column that `MADE` are made of. Null and empty text of a field have one directory.
    Raises `RecordUnfit` for a value that can be no name, and for one that could not be had back.
    """
    rest = batch.drop_columns([name for name in columns if name in batch.schema.names])
    if not columns:
        yield "", rest
        return
    codes = np.zeros(batch.num_rows, dtype=np.int64)
    names: list[list[str]] = []
    for column in columns:
        encoded = _texts(batch, column, time).dictionary_encode()
        names.append([_name(column, value) for value in encoded.dictionary.to_pylist()])
        codes = codes * len(names[-1]) + encoded.indices.to_numpy(zero_copy_only=False)
    found, inverse = np.unique(codes, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    rest = rest.take(pa.array(order))
    first = 0
    for code, count in zip(found.tolist(), np.bincount(inverse).tolist(), strict=True):
        parts = []
        for choices in reversed(names):
            code, index = divmod(code, len(choices))
            parts.append(choices[index])
        yield "/".join(reversed(parts)), rest.slice(first, count)
        first += count


def _texts(batch: pa.RecordBatch, column: str, time: str) -> pa.Array:
    if column in MADE and column not in batch.schema.names:
        texts = pc.strftime(batch.column(time), format=MADE[column])
    else:
        try:
            texts = batch.column(column).cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise RecordUnfit(
                f"{column} has a value that can be no name of a directory; leave it out of "
                "--partition-by"
            ) from None
    if pc.any(pc.equal(texts, NULL)).as_py():
        raise RecordUnfit(
            f"{column} has the value {NULL}, which is the name for none; leave it out of "
            "--partition-by"
        )
    is_empty = pc.equal(texts, "")
    is_bytes = column in batch.schema.names and pa.types.is_binary(batch.column(column).type)
    # A key goes back as it was, and is nowhere else.
    if is_bytes and pc.any(is_empty).as_py():
        raise RecordUnfit(
            f"{column} is empty, and would be in one directory with those that have none; "
            "leave it out of --partition-by"
        )
    # Spark has one name for null and for empty text, too.
    return pc.if_else(pc.fill_null(is_empty, True), NULL, texts)


def _name(column: str, value: str) -> str:
    escaped = "".join(f"%{ord(each):02X}" if each in _ESCAPED else each for each in value)
    name = f"{column}={escaped}"
    if len(name.encode()) > NAME_BYTES_MAX:
        raise RecordUnfit(
            f"{column} has a value of {len(value)} characters, too long for the name of a "
            "directory; leave it out of --partition-by"
        )
    return name
