"""`millrace spark`: exit code and message of wrong commands, before any JVM runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from millrace.sync import Admin
from millrace_cli.exits import Exit, run_blocking
from millrace_cli.main import app
from millrace_server.testing import BrokerThread
from millrace_spark.pipeline.directory import ImportDirectory
from millrace_spark.pipeline.errors import JobFailed


def run(*arguments: str, servers: str = "127.0.0.1:1") -> Result:
    """`millrace spark ARGUMENTS`, with a broker that is not there."""
    environment = {"MILLRACE_SERVERS": servers}
    return CliRunner().invoke(app, ["spark", *arguments], env=environment)


IMPORT = ("import", "clicks", "--to", "out")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ((*IMPORT, "--format", "xml"), Exit.USAGE, "--format: 'xml' is none of parquet, orc,"),
        ((*IMPORT, "--from", "soon"), Exit.USAGE, "--from: 'soon' is neither earliest nor latest"),
        ((*IMPORT, "--partition-by", "region"), Exit.USAGE, "no column 'region'; there are date"),
        ((*IMPORT, "--max-records", "0"), Exit.USAGE, "--max-records: at least 1"),
        ((*IMPORT, "--max-partition-bytes", "big"), Exit.USAGE, "maxPartitionBytes"),
        ((*IMPORT, "--deadline-ms", "1"), Exit.USAGE, "deadlineMs"),
        ((*IMPORT, "--follow", "--every", "0"), Exit.USAGE, "--every: from 0.1"),
        ((*IMPORT, "--schema", "none.json"), Exit.USAGE, "--schema none.json: No such file"),
        ((*IMPORT, "--conf", "memory=4g"), Exit.USAGE, "'memory=4g' is not spark.SOMETHING=VALUE"),
        ((*IMPORT, "--servers", "here:there"), Exit.USAGE, "servers"),
        (("import", "a", "a", "--to", "out"), Exit.USAGE, "each topic once"),
        (("import", "a", "--to", "s3://b/a"), Exit.USAGE, "only local paths"),
        ((*IMPORT, "--deadline-ms", "200"), Exit.UNAVAILABLE, "no broker at 127"),
        (("export", "in", "--to", "a", "--format", "xml"), Exit.USAGE, "'xml' is none of parquet"),
        (("export", "in", "--to", "a", "--compression", "zip"), Exit.USAGE, "compression"),
        (("export", "in", "--to", "a", "--deadline-ms", "200"), Exit.UNAVAILABLE, "no broker"),
        (("aggregate", "a", "--by", "region"), Exit.USAGE, "--by: no column 'region'"),
        (
            ("aggregate", "a", "--schema", "key int, record_key int"),
            Exit.USAGE,
            "another column is named record_key",
        ),
        ((*IMPORT, "--max-corrupt", "many"), Exit.USAGE, "--max-corrupt: 'many' is neither"),
        (("aggregate", "a", "--max-corrupt", "1"), Exit.USAGE, "--max-corrupt: needs --schema"),
        (
            ("aggregate", "a", "--schema", "v int", "--max-corrupt", "101%"),
            Exit.USAGE,
            "--max-corrupt: '101%' is more than 100%",
        ),
        (("aggregate", "a", "--by", ""), Exit.USAGE, "--by: name a column"),
        (("aggregate", "a", "--limit", "0"), Exit.USAGE, "--limit: from 1 to 10,000"),
        (("aggregate", "a", "--sql", "none.sql"), Exit.USAGE, "--sql none.sql: No such file"),
        (("aggregate", "a", "--since", "soon"), Exit.USAGE, "--since"),
    ],
)
def test_a_wrong_command_prints_a_remedy(
    arguments: tuple[str, ...],
    code: Exit,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == code
    assert sentence in result.stderr
    assert result.stdout == "" and "Traceback" not in result.stderr


def test_an_import_of_a_topic_there_is_not_writes_nothing(
    broker: BrokerThread, tmp_path: Path
) -> None:
    result = run("import", "nothing", "--to", str(tmp_path / "out"), servers=broker.servers)
    assert (result.exit_code, result.stdout) == (Exit.REFUSED, "")
    assert "nothing" in result.stderr
    assert not (tmp_path / "out/_millrace/ledger.json").exists()


def test_a_second_import_into_a_directory_is_refused_while_the_first_runs(tmp_path: Path) -> None:
    with ImportDirectory(str(tmp_path)).locked():
        result = run("import", "clicks", "--to", str(tmp_path))
    assert result.exit_code == Exit.REFUSED
    assert "is being imported into by process" in result.stderr


def test_an_import_without_news_needs_no_java(
    broker: BrokerThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Admin(broker.servers) as admin:
        admin.create_topic("quiet", partitions=2)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    out = str(tmp_path / "out")
    for _ in range(2):
        result = run("import", "quiet", "--to", out, "-g", "g1", servers=broker.servers)
        assert result.exit_code == Exit.OK, result.stderr
        assert result.stdout.split("\t")[:4] == ["g1", "0", "0", "0"]
    assert result.stderr == f"group g1 into {out}\n"


def test_a_call_of_java_that_fails_after_an_interrupt_is_no_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    @contextmanager
    def call_site() -> Iterator[None]:
        try:
            yield
        finally:
            raise RuntimeError("Answer from Java side is empty")

    def work(interrupt: BaseException) -> Exit:
        try:
            with call_site():
                raise interrupt
        except Exception as error:
            raise JobFailed(str(error)) from error

    found = []
    for interrupt in (KeyboardInterrupt(), RuntimeError("no JVM")):
        with pytest.raises(typer.Exit) as ended:
            run_blocking(partial(work, interrupt))
        found.append((ended.value.exit_code, capsys.readouterr().err))
    assert found == [
        (Exit.INTERRUPTED, ""),
        (Exit.REFUSED, "millrace: Answer from Java side is empty\n"),
    ]


def test_the_user_of_the_environment_logs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BrokerThread(
        listen="sasl://127.0.0.1:0",
        initial_user="ada",
        initial_password="pencil",
        super_users="User:ada",
        failed_authentication_delay_ms=0,
    ) as broker:
        with Admin(broker.servers, username="ada", password="pencil") as admin:
            admin.create_topic("quiet")
        monkeypatch.setenv("MILLRACE_USERNAME", "ada")
        for password, code, sentence in (
            ("pencil", Exit.OK, ""),
            ("guess", Exit.REFUSED, "the user or the password is wrong"),
            ("", Exit.USAGE, "set MILLRACE_PASSWORD too"),
        ):
            monkeypatch.setenv("MILLRACE_PASSWORD", password)
            out = str(tmp_path / "out")
            result = run("import", "quiet", "--to", out, servers=broker.servers)
            assert result.exit_code == code, result.stderr
            assert sentence in result.stderr
