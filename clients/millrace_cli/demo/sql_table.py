"""The demo's hourly table: a query over the topic, as `millrace sql` runs it.

Owns the query and the comparison with the CSV file. `flights` defines departures.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections import Counter

from millrace_cli.exits import Exit
from millrace_cli.table import show

SCHEMA = "hour int, dep_time int, dep_delay int"
QUERY = """
    SELECT hour, count(*) AS departures, round(avg(dep_delay), 2) AS minutes_late
    FROM "{topic}" WHERE dep_time IS NOT NULL GROUP BY hour ORDER BY hour
"""


async def hourly_table(servers: str, topic: str, expected: Counter[int]) -> Exit:
    """Prints the table, and compares its departures; OK too without DuckDB."""
    for package in ("duckdb", "pyarrow"):
        if importlib.util.find_spec(package) is None:
            _print(f"sql: omitted; it needs {package}: pip install 'millrace[sql]'")
            return Exit.OK
    # The broker runs on this loop, so the query must not block it.
    found = await asyncio.to_thread(_query, servers, topic)
    rows = [(hour, count, expected[hour], late) for hour, count, late in found]
    columns = ("hour", "departures, by SQL #", "from the CSV #", "mean delay in min, by SQL #")
    show(columns, rows, title="departures per hour, by millrace sql", kind="sql-hour")
    sys.stdout.flush()
    if {hour: count for hour, count, _ in found} != {**+expected}:
        _print("sql: the departures of an hour differ from the CSV")
        return Exit.REFUSED
    _print(f"sql: equal: {expected.total():,} departures in {len(found)} hours of the day")
    return Exit.OK


def _query(servers: str, topic: str) -> list[tuple[int, int, float]]:
    from millrace_cli.sql import duckdb_engine
    from millrace_cli.sql.query import parse_query
    from millrace_cli.sql.topics import open_table
    from millrace_spark.pipeline.value_schema import parse_schema

    table = open_table(topic, servers, start_ms=None, end_ms=None, schema=parse_schema(SCHEMA))
    query = parse_query(QUERY.format(topic=topic))
    datasets = {topic: table.dataset(servers)}
    with duckdb_engine.running(query, datasets, may_read_files=False) as rows:
        return [
            row
            for batch in rows.batches
            for row in zip(*(column.to_pylist() for column in batch), strict=True)
        ]


def _print(line: str) -> None:
    """Prints a message to stderr, as the rest of the demo does."""
    print(line, file=sys.stderr, flush=True)
