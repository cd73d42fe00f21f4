"""One Kafka client over TLS, against millrace and against Apache Kafka, and millrace without TLS.

As the group `kafka`, for values of a kibibyte: with TLS no record leaves by `sendfile`, so a row
beside the plain listener tells what that costs.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from benchmarks.apache_kafka import VERSION, Certificate, NoKafka, apache_kafka, free_port
from benchmarks.broker import running_broker
from benchmarks.kafka_group import OURS, THEIRS, Side, throughput
from benchmarks.results import Row, Skipped
from benchmarks.session import Session
from millrace_cli.dev_certificates import make_certificates

GROUP = "tls"
PLAIN = f"{OURS}, without TLS"
VALUE_BYTES = 1_024


def run(session: Session) -> Iterator[Row]:
    """Rows of records a second and CPU time."""
    if importlib.util.find_spec("confluent_kafka") is None:
        yield Skipped(GROUP, "confluent_kafka not installed: pip install 'millrace[bench]'")
        return
    directory = session.directory / "certificates"
    make_certificates(directory, hosts=["127.0.0.1", "localhost"], clients=[], days=1)
    broker_pem, ca = directory / "broker.pem", directory / "ca.pem"
    settings = {"MILLRACE_TLS_CERTIFICATE": str(broker_pem)}
    port = free_port()
    with running_broker(session, "tls-data", tls_port=port, settings=settings) as broker:
        sides = {
            OURS: Side(f"127.0.0.1:{port}", broker.pid, str(ca)),
            PLAIN: Side(broker.servers, broker.pid),
        }
        try:
            certificate = Certificate(key_for_java(broker_pem), ca)
            with apache_kafka(tls=certificate) as (address, pid):
                sides[THEIRS] = Side(address, pid, str(ca))
                yield from throughput(session, sides, VALUE_BYTES, group=GROUP, over=" over TLS")
        except NoKafka as error:
            yield Skipped(GROUP, f"Apache Kafka {VERSION}: {error}")


def key_for_java(pem: Path) -> Path:
    """A file with the same key and certificate, the key as Kafka's PEM stores read it."""
    data = pem.read_bytes()
    key = load_pem_private_key(data, None)
    written = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    certificates = data[data.index(b"-----BEGIN CERTIFICATE") :]
    path = pem.with_name(f"java-{pem.name}")
    path.write_bytes(written + certificates)
    return path
