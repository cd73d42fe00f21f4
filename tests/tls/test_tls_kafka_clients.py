"""Kafka's clients on a listener with TLS, which they call SSL."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import aiokafka
import confluent_kafka
import pytest

from millrace_server.testing import BrokerThread
from tests.hang_timeout import HANG_TIMEOUT_S
from tests.tls.conftest import Certificates

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import kafka

COUNT = 300
WANTED = [b"value %d" % number for number in range(COUNT)]


@pytest.fixture(scope="module")
def broker(certificates: Certificates) -> Iterator[BrokerThread]:
    """A broker that asks every client for a certificate."""
    with BrokerThread(
        listen="tls://127.0.0.1:0",
        tls_certificate=certificates.broker,
        tls_client_ca=certificates.ca,
        authorization="off",
        auto_create_topics=True,
    ) as running:
        yield running


@pytest.fixture
def address(broker: BrokerThread) -> str:
    return broker.servers.removeprefix("tls://")


def librdkafka(address: str, certificates: Certificates) -> dict[str, str]:
    """Settings of the clients that are built on librdkafka."""
    return {
        "bootstrap.servers": address,
        "security.protocol": "SSL",
        "ssl.ca.location": certificates.ca,
        "ssl.certificate.location": certificates.client,
        "ssl.key.location": certificates.client,
    }


def test_confluent_kafka(address: str, certificates: Certificates) -> None:
    settings = librdkafka(address, certificates)
    producer = confluent_kafka.Producer(settings)
    for value in WANTED:
        producer.produce("confluent", value)
    assert producer.flush(HANG_TIMEOUT_S) == 0
    consumer = confluent_kafka.Consumer(
        {**settings, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["confluent"])
    found: list[bytes | None] = []
    while len(found) < COUNT:
        for message in consumer.consume(COUNT, HANG_TIMEOUT_S):
            assert message.error() is None
            found.append(message.value())
    consumer.close()
    assert found == WANTED


def test_kafka_python(address: str, certificates: Certificates) -> None:
    settings = {
        "bootstrap_servers": address,
        "security_protocol": "SSL",
        "ssl_cafile": certificates.ca,
        "ssl_certfile": certificates.client,
        "ssl_keyfile": certificates.client,
    }
    producer = kafka.KafkaProducer(**settings)
    for value in WANTED:
        producer.send("kafka-python", value)
    producer.close()
    consumer = kafka.KafkaConsumer(
        "kafka-python", auto_offset_reset="earliest", group_id=None, **settings
    )
    found = [message.value for _, message in zip(range(COUNT), consumer, strict=False)]
    consumer.close()
    assert found == WANTED


async def test_aiokafka(address: str, certificates: Certificates) -> None:
    context = ssl.create_default_context(cafile=certificates.ca)
    context.load_cert_chain(certificates.client)
    settings = {
        "bootstrap_servers": address,
        "security_protocol": "SSL",
        "ssl_context": context,
    }
    async with aiokafka.AIOKafkaProducer(**settings) as producer:
        for value in WANTED:
            await producer.send("aiokafka", value)
        await producer.flush()
    found = []
    async with aiokafka.AIOKafkaConsumer(
        "aiokafka", auto_offset_reset="earliest", **settings
    ) as consumer:
        async for message in consumer:
            found.append(message.value)
            if len(found) == COUNT:
                break
    assert found == WANTED


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat(address: str, certificates: Certificates, tmp_path: Path) -> None:
    flags = [f"-X{name}={value}" for name, value in librdkafka(address, certificates).items()]
    lines = b"".join(value + b"\n" for value in WANTED)
    sent = ["kcat", *flags, "-P", "-t", "kcat"]
    subprocess.run(sent, input=lines, check=True, timeout=HANG_TIMEOUT_S)
    read = ["kcat", *flags, "-C", "-e", "-q", "-t", "kcat"]
    done = subprocess.run(read, capture_output=True, check=True, timeout=HANG_TIMEOUT_S)
    assert done.stdout == lines


def test_a_client_without_a_certificate_is_refused(
    address: str, certificates: Certificates
) -> None:
    settings = librdkafka(address, certificates)
    for name in ("ssl.certificate.location", "ssl.key.location"):
        del settings[name]
    errors: list[confluent_kafka.KafkaError] = []
    producer = confluent_kafka.Producer({**settings, "error_cb": errors.append})
    while not errors:
        producer.poll(1)
    assert errors[0].code() in (
        confluent_kafka.KafkaError._SSL,
        confluent_kafka.KafkaError._TRANSPORT,
        confluent_kafka.KafkaError._ALL_BROKERS_DOWN,
    )
