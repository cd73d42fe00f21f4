"""Kafka's clients on a listener with TLS and SASL, which they call SASL_SSL."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import warnings
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
import confluent_kafka.admin
import pytest

from millrace_server.testing import BrokerThread
from tests.hang_timeout import HANG_TIMEOUT_S
from tests.sasl.conftest import PASSWORD, SIMPLE_PASSWORD, SIMPLE_USER, USER
from tests.tls.conftest import Certificates

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import kafka
    import kafka.errors

ADMIN: Any = confluent_kafka.admin
"""Its type stubs do not export what is about users."""
COUNT = 300
WANTED = [b"value %d" % number for number in range(COUNT)]
MECHANISMS = pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])


def address_of(broker: BrokerThread) -> str:
    return broker.servers_of("sasl-tls").removeprefix("tls://")


def librdkafka(
    broker: BrokerThread, certificates: Certificates, mechanism: str, password: str = PASSWORD
) -> dict[str, Any]:
    """Settings of the clients that are built on librdkafka."""
    return {
        "bootstrap.servers": address_of(broker),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": certificates.ca,
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
    }


@MECHANISMS
def test_confluent_kafka(
    broker_thread: BrokerThread, certificates: Certificates, mechanism: str
) -> None:
    settings = librdkafka(broker_thread, certificates, mechanism)
    topic = f"confluent-{mechanism}"
    producer = confluent_kafka.Producer(settings)
    for value in WANTED:
        producer.produce(topic, value)
    assert producer.flush(HANG_TIMEOUT_S) == 0
    consumer = confluent_kafka.Consumer(
        {**settings, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[bytes | None] = []
    while len(found) < COUNT:
        for message in consumer.consume(COUNT, HANG_TIMEOUT_S):
            assert message.error() is None
            found.append(message.value())
    consumer.close()
    assert found == WANTED


@MECHANISMS
def test_kafka_python(
    broker_thread: BrokerThread, certificates: Certificates, mechanism: str
) -> None:
    settings = {
        "bootstrap_servers": address_of(broker_thread),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": certificates.ca,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": SIMPLE_USER,
        "sasl_plain_password": SIMPLE_PASSWORD,
    }
    topic = f"kafka-python-{mechanism}"
    producer = kafka.KafkaProducer(**settings)
    for value in WANTED:
        producer.send(topic, value)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, auto_offset_reset="earliest", group_id=None, **settings)
    found = [message.value for _, message in zip(range(COUNT), consumer, strict=False)]
    consumer.close()
    assert found == WANTED


@MECHANISMS
async def test_aiokafka(
    broker_thread: BrokerThread, certificates: Certificates, mechanism: str
) -> None:
    settings = {
        "bootstrap_servers": address_of(broker_thread),
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=certificates.ca),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }
    topic = f"aiokafka-{mechanism}"
    async with aiokafka.AIOKafkaProducer(**settings) as producer:
        for value in WANTED:
            await producer.send(topic, value)
        await producer.flush()
    found = []
    async with aiokafka.AIOKafkaConsumer(
        topic, auto_offset_reset="earliest", **settings
    ) as consumer:
        async for message in consumer:
            found.append(message.value)
            if len(found) == COUNT:
                break
    assert found == WANTED


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
@MECHANISMS
def test_kcat(
    broker_thread: BrokerThread, certificates: Certificates, mechanism: str, tmp_path: Path
) -> None:
    settings = librdkafka(broker_thread, certificates, mechanism)
    settings |= {"sasl.username": SIMPLE_USER, "sasl.password": SIMPLE_PASSWORD}
    config = tmp_path / "kcat.conf"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    lines = b"".join(value + b"\n" for value in WANTED)
    topic = f"kcat-{mechanism}"
    sent = ["kcat", "-F", str(config), "-P", "-t", topic]
    subprocess.run(sent, input=lines, check=True, timeout=HANG_TIMEOUT_S, capture_output=True)
    read = ["kcat", "-F", str(config), "-C", "-e", "-q", "-t", topic]
    done = subprocess.run(read, capture_output=True, check=True, timeout=HANG_TIMEOUT_S)
    assert done.stdout == lines


def test_a_wrong_password_is_told_to_librdkafka(
    broker_thread: BrokerThread, certificates: Certificates
) -> None:
    errors: list[confluent_kafka.KafkaError] = []
    settings = librdkafka(broker_thread, certificates, "SCRAM-SHA-256", "wrong")
    producer = confluent_kafka.Producer({**settings, "error_cb": errors.append})
    while not errors:
        producer.poll(1)
    assert errors[0].code() == confluent_kafka.KafkaError._AUTHENTICATION
    assert "the user or the password is wrong" in errors[0].str()


def test_confluent_kafka_sets_and_removes_users(
    broker_thread: BrokerThread, certificates: Certificates
) -> None:
    settings = librdkafka(broker_thread, certificates, "SCRAM-SHA-512")
    admin = ADMIN.AdminClient(settings)
    info = ADMIN.ScramCredentialInfo(ADMIN.ScramMechanism.SCRAM_SHA_256, 4096)
    upsertion = ADMIN.UserScramCredentialUpsertion("eve", info, b"apple")
    for done in admin.alter_user_scram_credentials([upsertion]).values():
        done.result(HANG_TIMEOUT_S)
    described = admin.describe_user_scram_credentials(["eve"])["eve"].result(HANG_TIMEOUT_S)
    assert [each.iterations for each in described.scram_credential_infos] == [4096]
    as_eve = ADMIN.AdminClient(
        {
            **settings,
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "eve",
            "sasl.password": "apple",
        }
    )
    assert as_eve.list_topics(timeout=HANG_TIMEOUT_S).brokers
    deletion = ADMIN.UserScramCredentialDeletion("eve", ADMIN.ScramMechanism.SCRAM_SHA_256)
    for done in admin.alter_user_scram_credentials([deletion]).values():
        done.result(HANG_TIMEOUT_S)
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        admin.describe_user_scram_credentials(["eve"])["eve"].result(HANG_TIMEOUT_S)
    assert refused.value.args[0].code() == 91
