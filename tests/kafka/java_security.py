"""Kafka's Java client over TLS: as a user, and with a certificate. Kafka's tools make the user and
the rights."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.tls_group import key_for_java
from millrace_cli.dev_certificates import make_certificates
from millrace_server.testing import BrokerThread

TOPIC, GROUP = "secured", "secured-group"
LINES = "".join(f"value-{n}\n" for n in range(100))
SUBJECT = "User:CN=loader,OU=development,O=millrace"
Java = Callable[..., str]
"""Runs a class of Kafka; see `java_tools.java`."""
_TOOLS = "org.apache.kafka.tools."


@contextmanager
def _broker(listen: str, **settings: str) -> Iterator[tuple[BrokerThread, Path]]:
    """A broker whose plain listener is its operator's, and a directory with certificates."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        hosts = ["localhost", "127.0.0.1"]
        make_certificates(directory, hosts=hosts, clients=["loader"], days=1)
        given: dict[str, Any] = {key: str(directory / each) for key, each in settings.items()}
        with BrokerThread(
            listen=f"127.0.0.1:0, {listen}",
            tls_certificate=str(directory / "broker.pem"),
            super_users="User:ANONYMOUS",
            **given,
        ) as broker:
            yield broker, directory


def scram_over_tls(java: Java) -> None:
    """SASL_SSL: kafka-configs makes the user, kafka-acls gives it rights."""
    with _broker("sasl+tls://127.0.0.1:0") as (broker, directory):
        operator = ("--bootstrap-server", broker.servers)
        java(
            "kafka.admin.ConfigCommand",
            *(*operator, "--alter", "--entity-type", "users", "--entity-name", "ada"),
            *("--add-config", "SCRAM-SHA-512=[iterations=4096,password=pencil]"),
        )
        login = "org.apache.kafka.common.security.scram.ScramLoginModule"
        config = _config(
            directory,
            "security.protocol=SASL_SSL",
            "sasl.mechanism=SCRAM-SHA-512",
            f'sasl.jaas.config={login} required username="ada" password="pencil";',
        )
        _rights_and_records(java, broker, "sasl-tls", "User:ada", config)


def certificates(java: Java) -> None:
    """SSL with a certificate of the client."""
    with _broker("tls://127.0.0.1:0", tls_client_ca="ca.pem") as (broker, directory):
        key = key_for_java(directory / "client-loader.pem")
        config = _config(
            directory,
            "security.protocol=SSL",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={key}",
        )
        _rights_and_records(java, broker, "tls", SUBJECT, config)


def _config(directory: Path, *lines: str) -> str:
    trust = ("ssl.truststore.type=PEM", f"ssl.truststore.location={directory / 'ca.pem'}")
    path = directory / "client.properties"
    path.write_text("\n".join((*lines, *trust, "")), "utf-8")
    return str(path)


def _rights_and_records(
    java: Java, broker: BrokerThread, listener: str, principal: str, config: str
) -> None:
    operator = ("--bootstrap-server", broker.servers)
    java(_TOOLS + "TopicCommand", *operator, "--create", "--topic", TOPIC, "--partitions", "1")
    acls = "org.apache.kafka.tools.AclCommand"
    for role in ("--producer", "--consumer"):
        group = ("--group", GROUP) if role == "--consumer" else ()
        java(
            acls,
            *(*operator, "--add", "--allow-principal", principal, role, "--topic", TOPIC, *group),
        )
    listed = java(acls, *operator, "--list", "--topic", TOPIC)
    assert "operation=WRITE" in listed and principal in listed, listed
    servers = broker.servers_of(listener).removeprefix("tls://")
    where = ("--bootstrap-server", servers, "--topic", TOPIC)
    java(_TOOLS + "ConsoleProducer", *where, "--command-config", config, stdin=LINES)
    read = java(
        _TOOLS + "consumer.ConsoleConsumer",
        *(*where, "--command-config", config, "--group", GROUP),
        *("--from-beginning", "--max-messages", "100"),
    )
    assert read == LINES
