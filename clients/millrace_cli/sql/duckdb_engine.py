"""A query on DuckDB, in this process.

Owns the connection and its limits: without leave it reads no file and no network, changes no
setting, and sees no variable of Python. What does not fit into memory goes to a temporary
directory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from millrace.errors import ConfigError
from millrace_cli.exits import CommandError
from millrace_cli.sql.query import Query, sentence_of
from millrace_cli.sql.rows import Rows

if TYPE_CHECKING:
    from millrace._sync.topic_dataset import TopicDataset

ROWS_PER_BATCH = 10_000


@contextmanager
def running(
    query: Query, tables: Mapping[str, TopicDataset], *, may_read_files: bool
) -> Iterator[Rows]:
    """The rows of a query over tables; DuckDB computes while they are read.

    Raises `ConfigError` for a query that DuckDB refuses, `CommandError` for one that fails, and
    what a topic's scan raises.
    """
    with tempfile.TemporaryDirectory(prefix="millrace-sql-") as directory, duckdb.connect() as here:
        here.execute("SET temp_directory = ?", [directory])
        here.execute("SET TimeZone = 'UTC'")
        here.execute("SET python_enable_replacements = false")
        if not may_read_files:
            here.execute("SET enable_external_access = false")
        here.execute("SET lock_configuration = true")
        for name, table in tables.items():
            here.register(name, table)
        try:
            found = here.sql(query.text).to_arrow_reader(ROWS_PER_BATCH)
        except Exception as error:
            raise _translated(error, tables) from None
        yield Rows(found.schema, _batches(found, tables))


def _batches(
    found: pa.RecordBatchReader, tables: Mapping[str, TopicDataset]
) -> Iterator[pa.RecordBatch]:
    try:
        yield from found
    except GeneratorExit:
        raise
    except Exception as error:
        raise _translated(error, tables) from None


def _translated(error: Exception, tables: Mapping[str, TopicDataset]) -> BaseException:
    """The error to raise: that of a scan, of which DuckDB has the text only, or DuckDB's own."""
    for table in tables.values():
        if table.error is not None:
            return table.error
    if isinstance(error, duckdb.InterruptException) or "interrupted" in str(error).lower():
        return KeyboardInterrupt()
    if isinstance(error, duckdb.PermissionException):
        return ConfigError(f"the query: {sentence_of(error)}; --allow-files allows it")
    if isinstance(error, duckdb.ProgrammingError):
        return ConfigError(f"the query: {sentence_of(error)}")
    if isinstance(error, duckdb.Error):
        return CommandError(f"the query failed: {sentence_of(error)}")
    if isinstance(error, pa.ArrowException | OSError):
        return CommandError(f"the query failed: {error}")
    return error
