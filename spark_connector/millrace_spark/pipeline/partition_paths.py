"""Directories by the values of columns, as in Hive and Spark: `date=2026-01-31/hour=07/`.

Owns the two columns derived from the timestamp, the partitioning of a batch by values, and the
escaping of values in names. Source: Spark's `ExternalCatalogUtils.escapePathName`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from millrace.errors import ConfigError
from millrace_spark.pipeline.errors import RecordUnfit

DERIVED = {"date": "%Y-%m-%d", "hour": "%H"}
"""Columns derived from the timestamp, in UTC. An hour needs a date."""
NULL = "__HIVE_DEFAULT_PARTITION__"
NAME_BYTES_MAX = 255
"""Longest name of a directory in the file systems of Linux."""
_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^") | {chr(code) for code in range(32)}


def partition_columns(wanted: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """The columns of the directories, with `date` for `hour`.

    Raises `ConfigError` for an unknown column, and for a derived column that Spark would confuse
    with another.

    >>> partition_columns(["topic", "hour"], ["topic", "value"])
    ('topic', 'date', 'hour')
    """
    found: list[str] = []
    for name in wanted:
        if name not in DERIVED and name not in columns:
            raise ConfigError(
                f"--partition-by: no column {name!r}; there are {', '.join((*DERIVED, *columns))}"
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
                    f"--partition-by: {name} is derived from the timestamp, and would hide the "
                    f"field {column}, because Spark ignores case; give {column}, or rename it"
                )
    if found and not set(columns) - set(found):
        raise ConfigError("--partition-by: leave at least one column for the files")
    return tuple(found)


def cut(
    batch: pa.RecordBatch, columns: Sequence[str], *, time: str = "timestamp"
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows by directory, in their order, without the columns of the directory.

    The `DERIVED` columns come from the column `time`. Null and empty text have the same directory.
    Raises `RecordUnfit` for a value that cannot be a name, or that a reader could not restore.
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
    if column in DERIVED and column not in batch.schema.names:
        texts = pc.strftime(batch.column(time), format=DERIVED[column])
    else:
        try:
            texts = batch.column(column).cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise RecordUnfit(
                f"{column} has a value that cannot be the name of a directory; leave it out of "
                "--partition-by"
            ) from None
    if pc.any(pc.equal(texts, NULL)).as_py():
        raise RecordUnfit(
            f"{column} has the value {NULL}, which stands for null; leave it out of --partition-by"
        )
    is_empty = pc.equal(texts, "")
    is_bytes = column in batch.schema.names and pa.types.is_binary(batch.column(column).type)
    # A key must be restored, and no other column has it.
    if is_bytes and pc.any(is_empty).as_py():
        raise RecordUnfit(
            f"{column} is empty, and would be in the directory for null; leave it out of "
            "--partition-by"
        )
    # As in Spark, null and empty text have one name.
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
