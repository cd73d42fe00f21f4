"""Reads, writes and the pipeline against listeners with TLS and a login."""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from millrace import sync
from millrace.acls import Acl, Operation, ResourceType
from millrace.config import ClientOptions
from millrace.errors import ConfigError
from millrace_cli.sql.run import SqlSettings, run_once
from millrace_server.testing import BrokerThread
from millrace_spark.errors import OptionError
from millrace_spark.options.credentials import Credentials, credentials_of
from millrace_spark.options.read_options import parse_read_options
from millrace_spark.options.write_options import parse_write_options
from millrace_spark.pipeline.aggregate_run import AggregateSettings, aggregate
from millrace_spark.pipeline.export_run import ExportSettings, export_files
from millrace_spark.pipeline.import_run import ImportSettings, import_topics
from millrace_spark.pipeline.progress import NoProgress
from tests.tls.conftest import Certificates
from tests.tls.conftest import certificates as certificates

ROOT = Path(__file__).parents[2]
ADMIN, USER, PASSWORD = "admin", "reports", "secret-4711"
LOGIN = {"username": USER, "password": PASSWORD}
FROM_PANDAS = "ignore:PySpark does not yet fully support pandas:FutureWarning"


@pytest.fixture(scope="module")
def guarded(certificates: Certificates) -> Iterator[BrokerThread]:
    """A broker whose clients log in, with a user that has the rights of the connector's page."""
    with BrokerThread(
        listen="sasl+tls://127.0.0.1:0, sasl://127.0.0.1:0",
        tls_certificate=certificates.broker,
        initial_user=ADMIN,
        initial_password=PASSWORD,
        super_users=f"User:{ADMIN}",
        failed_authentication_delay_ms=0,
    ) as running:
        with administrator(running) as admin:
            admin.set_password(USER, PASSWORD)
            admin.create_acls(
                [
                    *(allow("read", "topic", name) for name in ("clicks", "visits", "back")),
                    *(allow("write", "topic", name) for name in ("clicks", "streamed", "back")),
                    *(allow("read", "group", name) for name in ("progress", "into-files")),
                ]
            )
            for name, partitions in (("clicks", 2), ("streamed", 1), ("visits", 2), ("back", 1)):
                admin.create_topic(name, partitions=partitions)
        yield running


def administrator(broker: BrokerThread) -> sync.Admin:
    return sync.Admin(broker.servers_of("sasl"), username=ADMIN, password=PASSWORD)


def allow(operation: Operation, kind: ResourceType, name: str) -> Acl:
    return Acl(f"User:{USER}", operation, kind, name)


@pytest.fixture
def given(guarded: BrokerThread, certificates: Certificates) -> dict[str, str]:
    """The options of a read or a write that may."""
    servers = guarded.servers_of("sasl-tls")
    return {"millrace.servers": servers, "tlsCa": certificates.ca, **LOGIN}


@pytest.mark.spark
@pytest.mark.filterwarnings(FROM_PANDAS)
def test_a_batch_and_a_stream_log_in(
    spark: Any, guarded: BrokerThread, given: dict[str, str], tmp_path: Path
) -> None:
    rows = spark.createDataFrame([(b"%d" % n,) for n in range(5)], "value binary")
    writer = rows.write.format("millrace").options(**given).option("topic", "clicks")
    writer.mode("append").save()
    clicks = as_on_the_page(spark, given)
    assert sorted(bytes(row.value) for row in clicks.collect()) == [b"%d" % n for n in range(5)]
    assert PASSWORD not in clicks._jdf.queryExecution().toString()
    records = (
        spark.readStream.format("millrace")
        .options(**given, subscribe="clicks", startingOffsets="earliest", commitGroup="progress")
        .load()
    )
    query = (
        records.select("value")
        .writeStream.format("millrace")
        .options(**given, topic="streamed", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    with administrator(guarded) as admin:
        (streamed,) = admin.list_offsets({("streamed", 0): "latest"}).values()
        assert streamed.offset == 5
        committed = admin.list_group_offsets("progress").values()
        assert sum(each.offset for each in committed) == 5


def as_on_the_page(spark: Any, given: dict[str, str]) -> Any:
    """The data frame `clicks` of the connector's page."""
    page = (ROOT / "spark_connector" / "README.md").read_text("utf-8")
    found = re.search(r"^```py\n(.*?)^```", page.partition("## TLS and login\n")[2], re.M | re.S)
    assert found is not None
    code = found[1]
    for example, here in (
        ("tls://broker-1:9093", given["millrace.servers"]),
        ("/etc/millrace/ca.pem", given["tlsCa"]),
        ('os.environ["MILLRACE_PASSWORD"]', repr(PASSWORD)),
    ):
        assert example in code
        code = code.replace(example, here)
    names = {"spark": spark}
    exec(compile(code, "spark_connector/README.md", "exec"), names)
    return names["clicks"]


@pytest.mark.spark
@pytest.mark.filterwarnings(FROM_PANDAS)
def test_the_pipeline_logs_in(
    spark: Any,
    guarded: BrokerThread,
    certificates: Certificates,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers = guarded.servers_of("sasl-tls")
    credentials = Credentials(tls_ca=certificates.ca, username=USER, password=PASSWORD)
    plain = guarded.servers_of("sasl")
    with sync.Producer(plain, username=ADMIN, password=PASSWORD) as producer:
        producer.send_many("visits", [b"%d" % n for n in range(6)])
    imported = import_topics(
        lambda: spark,
        ImportSettings(
            ("visits",), str(tmp_path / "in"), servers, "into-files", credentials=credentials
        ),
    )
    assert (imported.records, imported.lag) == (6, 0)
    export = ExportSettings(str(tmp_path / "in"), "back", servers, credentials=credentials)
    assert export_files(lambda: spark, export).records == 6
    counted = AggregateSettings(("back",), servers, by=("topic",), credentials=credentials)
    assert aggregate(lambda: spark, counted).rows[0][:2] == ("back", "6")
    # `millrace sql` has the login of its environment.
    monkeypatch.setenv("MILLRACE_USERNAME", USER)
    monkeypatch.setenv("MILLRACE_PASSWORD", PASSWORD)
    settings = SqlSettings("SELECT count(*) FROM back", plain, {}, spark=lambda: spark)
    with redirect_stdout(io.StringIO()) as out:
        run_once(settings, NoProgress())
    assert out.getvalue() == "6\n"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"password": "guess"}, "the user or the password is wrong"),
        ({"tlsCa": "/nowhere/ca.pem"}, "/nowhere/ca.pem"),
    ],
)
def test_a_read_that_may_not_fails_at_once_and_says_why(
    spark: Any, given: dict[str, str], changed: dict[str, str], sentence: str
) -> None:
    reader = spark.read.format("millrace").options(**given).option("subscribe", "clicks")
    with pytest.raises(Exception, match=sentence) as caught:
        # A read that retries would not end before the test is ended.
        reader.options(**changed).option("deadlineMs", "3600000").load().count()
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"username": USER}, r"^password: must be set, because username is$"),
        ({"tlsKey": "key.pem"}, r"^tlsKey: needs the certificate of the key"),
        ({**LOGIN, "token": "t"}, r"^username"),
        ({**LOGIN, "saslMechanism": "GSSAPI"}, r"^saslMechanism: "),
    ],
)
def test_credentials_that_cannot_be_are_refused_by_name(
    wrong: dict[str, str], sentence: str
) -> None:
    given = {"millrace.servers": "a:1", **wrong}
    for is_stream in (False, True):
        with pytest.raises(OptionError, match=sentence):
            parse_read_options({**given, "subscribe": "t"}, is_stream=is_stream)
        with pytest.raises(OptionError, match=sentence):
            parse_write_options(given, is_stream=is_stream)


def test_the_options_of_credentials_make_the_same_and_no_text_shows_a_secret() -> None:
    credentials = Credentials(
        tls_ca="ca.pem", username=USER, password=PASSWORD, sasl_mechanism="PLAIN"
    )
    given = {"millrace.servers": "tls://a:1", "subscribe": "t", **credentials.options()}
    options = parse_read_options(given, is_stream=False)
    assert options.credentials == credentials
    assert pickle.loads(pickle.dumps(options)) == options
    for settings in (
        options,
        ImportSettings(("t",), "out", credentials=credentials),
        ExportSettings("in", "t", credentials=credentials),
        AggregateSettings(("t",), credentials=credentials),
    ):
        assert PASSWORD not in repr(settings)


def test_the_commands_take_the_user_of_a_client() -> None:
    options: ClientOptions = {"client_id": "cli", "username": USER, "password": PASSWORD}
    assert credentials_of(options) == Credentials(username=USER, password=PASSWORD)
    with pytest.raises(ConfigError, match="password"):
        credentials_of({"username": USER})
