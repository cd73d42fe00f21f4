"""`millrace sql`: topics are tables, and a query reads them and nothing else."""

from __future__ import annotations

import csv
import io
import json
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from millrace.sync import Producer
from millrace_cli.exits import Exit
from millrace_cli.sql import duckdb_engine, run
from millrace_cli.sql.rows import Rows
from tests.cli.conftest import Millrace, Serving

TIME_MS = 1_700_000_000_000
NO_FILES = "file system operations are disabled by configuration; --allow-files allows it"


@pytest.fixture
def clicks(broker: Serving, topic: str) -> str:
    """Six records in each of two partitions, a second apart: users 0 to 5."""
    with Producer(broker.servers) as producer:
        for partition in range(2):
            producer.send_many(
                topic,
                [
                    json.dumps({"user": n, "page": f"/{n % 2}", "ms": n / 2}).encode()
                    for n in range(6)
                ],
                keys=[b"k%d" % n for n in range(6)],
                timestamps_ms=[TIME_MS + 1000 * n for n in range(6)],
                partition=partition,
            )
    return topic


def test_a_query_groups_the_fields_of_json_values(millrace: Millrace, clicks: str) -> None:
    done = millrace(
        "sql", f'SELECT page, count(*), sum("user"), avg(ms) FROM "{clicks}" GROUP BY 1 ORDER BY 1'
    )
    assert done.exit_code == 0, done.output
    assert done.stdout == "/0\t6\t12\t1.0\n/1\t6\t18\t1.5\n"


def test_the_columns_are_those_of_the_record_and_the_inferred_fields(
    millrace: Millrace, clicks: str
) -> None:
    done = millrace("sql", f'DESCRIBE "{clicks}"')
    assert [line.split("\t")[:2] for line in done.stdout.splitlines()] == [
        ["key", "BLOB"],
        ["value", "BLOB"],
        ["topic", "VARCHAR"],
        ["partition", "INTEGER"],
        ["offset", "BIGINT"],
        ["timestamp", "TIMESTAMP WITH TIME ZONE"],
        ["timestampType", "INTEGER"],
        ["headers", 'STRUCT("key" VARCHAR, "value" BLOB)[]'],
        ["user", "BIGINT"],
        ["page", "VARCHAR"],
        ["ms", "DOUBLE"],
    ]


def test_every_format_has_the_same_result(millrace: Millrace, clicks: str, tmp_path: Path) -> None:
    query = (
        f'SELECT key, timestamp, "user", NULL AS nothing FROM "{clicks}" '
        'WHERE partition = 1 ORDER BY "offset" LIMIT 2'
    )
    times = ["2023-11-14T22:13:20Z", "2023-11-14T22:13:21Z"]
    rows = [["k0", times[0], "0", ""], ["k1", times[1], "1", ""]]
    table = millrace("sql", query)
    assert [line.split("\t") for line in table.stdout.splitlines()] == [
        [cell or "-" for cell in row] for row in rows
    ]
    found = millrace("sql", query, "--format", "csv")
    assert [*csv.reader(io.StringIO(found.stdout))] == [
        ["key", "timestamp", "user", "nothing"],
        *rows,
    ]
    found = millrace("sql", query, "--format", "json")
    assert [json.loads(line) for line in found.stdout.splitlines()] == [
        {"key": "k0", "timestamp": times[0], "user": 0, "nothing": None},
        {"key": "k1", "timestamp": times[1], "user": 1, "nothing": None},
    ]
    file = tmp_path / "result.parquet"
    assert millrace("sql", query, "--format", "parquet", "--to", str(file)).exit_code == 0
    assert pq.read_table(file).select(["key", "user"]).to_pylist() == [
        {"key": b"k0", "user": 0},
        {"key": b"k1", "user": 1},
    ]
    assert [each.name for each in tmp_path.iterdir()] == ["result.parquet"]
    piped = millrace.process("sql", query, "--format", "parquet").stdout
    assert pq.read_table(io.BytesIO(piped)).num_rows == 2


def test_bytes_that_are_no_text_are_shown_as_consume_shows_them(
    millrace: Millrace, broker: Serving, topic: str
) -> None:
    with Producer(broker.servers) as producer:
        producer.send(topic, b"\xff\x00", key=b"k")
    query = f'SELECT key, value FROM "{topic}"'
    assert millrace("sql", query).stdout == "k\t\\xff\\x00\n"
    assert json.loads(millrace("sql", query, "-f", "json").stdout) == {
        "key": "k",
        "value": {"base64": "/wA="},
    }


def test_a_schema_gives_the_types_and_a_field_that_does_not_fit_is_null_and_told(
    millrace: Millrace, broker: Serving, topic: str, tmp_path: Path
) -> None:
    with Producer(broker.servers) as producer:
        values = [b'{"user":"7","page":"/a"}', b'{"user":"x","page":"/b"}', b"no json"]
        producer.send_many(topic, values, partition=0)
    schema = tmp_path / "schema"
    schema.write_text("user bigint, page string")
    done = millrace(
        "sql", f'SELECT "user", page FROM "{topic}" ORDER BY "offset"', "--schema", str(schema)
    )
    assert done.stdout == "7\t/a\n-\t/b\n-\t-\n"
    assert sorted(done.stderr.splitlines()) == [
        f"millrace: 1 value is no JSON object, at {topic}-0 offset 2: 'no json'; "
        "null in the result",
        f"millrace: 1 value of user does not fit its type, at {topic}-0 offset 1: 'x'; "
        "null in the result",
    ]


def test_a_topic_without_json_has_the_columns_of_its_records(
    millrace: Millrace, broker: Serving, topic: str
) -> None:
    query = f'SELECT count(*), max("offset") FROM "{topic}"'
    assert millrace("sql", query).stdout == "0\t-\n"
    with Producer(broker.servers) as producer:
        producer.send_many(topic, [b"a", None, b"[1]"], partition=0)
    assert millrace("sql", query).stdout == "3\t2\n"


def test_from_and_until_bound_the_read_by_time(millrace: Millrace, clicks: str) -> None:
    query = f'SELECT min("user"), max("user"), count(*) FROM "{clicks}"'
    bounds = ("--from", str(TIME_MS + 1500), "--until", "2023-11-14T22:13:24Z")
    assert millrace("sql", query, *bounds).stdout == "2\t3\t4\n"


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("CREATE TABLE x (a int)", "give one SELECT; nothing else runs over topics"),
        ("COPY (SELECT 1) TO 'x'", "give one SELECT; nothing else runs over topics"),
        ("SET lock_configuration = false", "give one SELECT; nothing else runs over topics"),
        ("INSTALL httpfs", "give one SELECT; nothing else runs over topics"),
        ("SELECT 1; SELECT 2", "give one SELECT; nothing else runs over topics"),
        ("", "give one SELECT; nothing else runs over topics"),
        ("SELECT FROM WHERE", "the query: syntax error at or near"),
        ("SELECT offset FROM x", 'OFFSET is a keyword of SQL: write the column as "offset"'),
        ("SELECT * FROM nosuch", "there is no topic nosuch"),
        ("SELECT * FROM '/etc/passwd'", "there is no topic /etc/passwd"),
        (
            "SELECT * FROM read_csv('/etc/passwd')",
            NO_FILES,
        ),
        (
            "SELECT * FROM read_text('/etc/passwd')",
            NO_FILES,
        ),
        (
            "SELECT * FROM glob('/*')",
            NO_FILES,
        ),
        ("SELECT nosuch FROM (SELECT 1 AS a)", 'Referenced column "nosuch" not found'),
    ],
)
def test_what_is_no_query_over_topics_is_one_sentence(
    millrace: Millrace, query: str, sentence: str
) -> None:
    done = millrace("sql", query)
    assert done.exit_code == Exit.USAGE
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_a_topic_that_is_almost_named_is_proposed(millrace: Millrace, clicks: str) -> None:
    done = millrace("sql", f'SELECT * FROM "{clicks}x"')
    assert f"there is no topic {clicks}x; did you mean {clicks}?" in done.stderr
    done = millrace("sql", f'SELECT usr FROM "{clicks}"')
    assert done.exit_code == Exit.USAGE
    assert re.search(r'"usr" not found.*"user".*--schema names others', done.stderr)


def test_files_are_read_if_they_are_allowed(
    millrace: Millrace, clicks: str, tmp_path: Path
) -> None:
    names = tmp_path / "names.csv"
    names.write_text("user,name\n3,Ann\n")
    query = f"""SELECT name, count(*) FROM "{clicks}" JOIN '{names}' USING ("user") GROUP BY 1"""
    assert millrace("sql", query).exit_code == Exit.USAGE
    assert millrace("sql", query, "--allow-files").stdout == "Ann\t2\n"


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--to", "x"), "--to: needs --format csv, json or parquet"),
        (("--to", "/nonexistent/x", "-f", "csv"), "the directory does not exist"),
        (("--to", "/", "-f", "csv"), "is a directory; name a file"),
        (("--until", "yesterday"), "--until: 'yesterday' is neither milliseconds"),
        (("--schema", "/nonexistent"), "--schema /nonexistent: No such file"),
        (("--follow", "--spark"), "--follow: runs on DuckDB"),
        (("--master", "local"), "--master, --conf: need --spark"),
        (("--follow",), "--follow: the query names no topic that could grow"),
    ],
)
def test_flags_that_cannot_be_are_one_sentence(
    millrace: Millrace, flags: tuple[str, ...], sentence: str
) -> None:
    done = millrace("sql", "SELECT 1", *flags)
    assert done.exit_code == Exit.USAGE
    assert sentence in " ".join(done.stderr.split())


def test_a_query_that_fails_leaves_no_file(millrace: Millrace, clicks: str, tmp_path: Path) -> None:
    file = tmp_path / "result.csv"
    file.write_text("before")
    query = f"""SELECT CAST(page AS int) FROM "{clicks}\""""
    done = millrace("sql", query, "-f", "csv", "--to", str(file))
    assert done.exit_code == Exit.REFUSED
    assert "the query failed: Conversion Error" in done.stderr
    assert file.read_text() == "before"
    assert [*tmp_path.iterdir()] == [file]


def test_a_query_without_a_broker_says_so(millrace: Millrace, closed_port: str) -> None:
    done = millrace("sql", "SELECT * FROM t", "--servers", closed_port)
    assert done.exit_code == Exit.UNAVAILABLE
    assert done.stderr == f"millrace: no broker at {closed_port}: Connection refused\n"


def test_follow_prints_the_result_again_after_new_records(
    millrace: Millrace, broker: Serving, clicks: str
) -> None:
    query = f'SELECT count(*), max("user") FROM "{clicks}"'
    with (
        millrace.running("sql", query, "--follow", "--every", "0.1") as process,
        Producer(broker.servers) as producer,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == b"12\t5\n"
        producer.send(clicks, b'{"user": 40}')
        assert process.stdout.readline() == b"\n"
        assert process.stdout.readline() == b"13\t40\n"
        process.send_signal(signal.SIGINT)
        assert process.wait() == Exit.INTERRUPTED


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, Exit.INTERRUPTED),
        (signal.SIGTERM, Exit.TERMINATED),
        (signal.SIGHUP, Exit.HUNG_UP),
    ],
)
def test_follow_ends_with_a_signal_whose_exception_was_dropped(
    millrace: Millrace,
    clicks: str,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    code: Exit,
) -> None:
    """Python drops what is raised in a destructor, and DuckDB has some behind each result."""

    class Closing:
        def __del__(self) -> None:
            signal.raise_signal(number)

    read = duckdb_engine.running

    @contextmanager
    def running(*args: Any, **kwargs: Any) -> Iterator[Rows]:
        with read(*args, **kwargs) as rows:
            yield rows
        Closing()

    def sleep(seconds: float) -> None:
        pytest.fail("it goes on")

    monkeypatch.setattr(duckdb_engine, "running", running)
    monkeypatch.setattr(run, "time", SimpleNamespace(sleep=sleep))
    dropped: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: dropped.append(each.exc_type))
    done = millrace("sql", f'SELECT count(*) FROM "{clicks}"', "--follow", "--every", "0.1")
    assert (done.exit_code, done.stdout) == (code, "12\n")
    assert dropped == [KeyboardInterrupt]


def test_sigterm_ends_a_query_and_leaves_no_file(millrace: Millrace, tmp_path: Path) -> None:
    millrace.environment["TMPDIR"] = str(tmp_path)
    query = "SELECT range FROM range(1_000_000_000_000)"
    with millrace.running("sql", query, "--format", "csv") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"range\n"
        assert len([*tmp_path.iterdir()]) == 1, "where DuckDB puts what does not fit into memory"
        process.send_signal(signal.SIGTERM)
        process.communicate()
        assert process.returncode == Exit.TERMINATED
    assert [*tmp_path.iterdir()] == []


def test_a_reader_that_goes_away_ends_a_query(millrace: Millrace) -> None:
    query = "SELECT range FROM range(1_000_000_000_000)"
    millrace.environment["PYTHONUNBUFFERED"] = "1"
    with millrace.running("sql", query) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"0\n"
        process.stdout.close()
        assert process.wait() == Exit.PIPE_CLOSED


def test_the_query_may_come_from_stdin(millrace: Millrace) -> None:
    assert millrace.process("sql", "-", stdin=b"SELECT 41 + 1").stdout == b"42\n"


def test_progress_goes_to_stderr_and_ends_before_the_result(
    millrace: Millrace, clicks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millrace_cli.progress_display.LINE_S", 0)
    done = millrace("sql", f'SELECT count(*) FROM "{clicks}"')
    assert done.stdout == "12\n"
    assert re.search(r"^reading: 12 rows, .* rows/s, lag 0$", done.stderr, re.M)
    assert millrace("sql", f'SELECT count(*) FROM "{clicks}"', "--quiet").stderr == ""


@pytest.mark.parametrize(
    ("predicate", "count"),
    [
        ("timestamp >= TIMESTAMPTZ '2023-11-14 22:13:24+00'", 4),
        ('"offset" < 1', 2),
        ("partition = 1", 6),
    ],
)
def test_a_predicate_reads_only_its_range(
    millrace: Millrace, clicks: str, monkeypatch: pytest.MonkeyPatch, predicate: str, count: int
) -> None:
    monkeypatch.setattr("millrace_cli.progress_display.LINE_S", 0)
    done = millrace("sql", f'SELECT count(*) FROM "{clicks}" WHERE {predicate}')
    assert done.stdout == f"{count}\n"
    (*_, last) = re.findall(r"^reading: (\d+) rows", done.stderr, re.M)
    assert int(last) == count
