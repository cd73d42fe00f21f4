"""The text of a query: one SELECT, and the tables that it names.

Owns what is refused before anything is read. DuckDB parses, also for a query that runs on Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import duckdb

from millrace.errors import ConfigError

_UNQUOTED_OFFSET = re.compile(r'(?<!")\boffset\b(?!")', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Query:
    """One SELECT, and the names of its tables, without those that it defines itself."""

    text: str
    tables: frozenset[str]


def parse_query(text: str) -> Query:
    """Raises `ConfigError` for a text that is not one statement, and for one that may change data.

    >>> parse_query("SELECT count(*) FROM clicks").tables
    frozenset({'clicks'})
    """
    with duckdb.connect() as parser:
        (found,) = parser.execute("SELECT json_serialize_sql(?)", [text]).fetchone() or ("{}",)
    parsed = json.loads(found)
    if parsed["error"] and parsed["error_type"] == "parser":
        raise ConfigError(f"the query: {_with_hint(parsed['error_message'], text)}")
    if parsed["error"] or len(parsed["statements"]) != 1:
        raise ConfigError("the query: give one SELECT; nothing else runs over topics")
    return Query(text, frozenset(_tables(parsed["statements"][0])))


def topics_of(query: Query, topics: Collection[str], *, may_name_files: bool) -> list[str]:
    """The topics that a query names, sorted; `topics` are those that exist.

    Raises `ConfigError` for a table that is no topic, unless it may be a file.
    """
    found = sorted(query.tables & {*topics})
    for name in sorted(query.tables - {*topics}):
        if may_name_files:
            continue
        near = get_close_matches(name, topics, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"there is no topic {name}{hint}")
    for name in found:
        others = [other for other in found if other != name and other.lower() == name.lower()]
        if others:
            raise ConfigError(f"{name} and {others[0]} are one name in SQL; query one of them")
    return found


def sentence_of(error: duckdb.Error) -> str:
    """What DuckDB says about a query, without the place in its text."""
    return str(error).split("\n\nLINE ")[0].replace("\n", " ")


def _with_hint(message: str, text: str) -> str:
    if _UNQUOTED_OFFSET.search(text):
        return f'{message}; OFFSET is a keyword of SQL: write the column as "offset"'
    return message


def _tables(statement: Any) -> set[str]:
    """The tables of a statement in DuckDB's JSON, but those that it defines in WITH."""
    tables: set[str] = set()
    defined: set[str] = set()
    nodes = [statement]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            if node.get("type") == "BASE_TABLE" and node["schema_name"] in ("", "main"):
                tables.add(node["table_name"])
            if "cte_map" in node:
                defined.update(each["key"] for each in node["cte_map"]["map"])
            nodes += node.values()
        elif isinstance(node, list):
            nodes += node
    return tables - defined
