"""TLS between brokers: each shows a certificate, and checks the one of the other."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from millrace import Producer
from millrace_cli.dev_certificates import make_certificates
from millrace_protocol.messages.broker_hello import BrokerHelloResponse
from millrace_protocol.messages.hello import HelloRequest
from millrace_server.api_error import ApiError
from millrace_server.net import tls
from millrace_server.peers import connections
from millrace_server.peers.calls import Channel
from millrace_server.testing import Broker, Cluster, ClusterProcesses
from tests.broker.wire import Wire, until
from tests.cluster.observers import observing
from tests.cluster.records import TOPIC, create_topic, numbers, read_all, send
from tests.cluster.settings import SETTINGS
from tests.hang_timeout import HANG_TIMEOUT_S
from tests.tls.conftest import Certificates
from tests.tls.conftest import certificates as certificates

HANG_TIMEOUT_MS = int(HANG_TIMEOUT_S * 1000)
OF_ALL = "User:CN=localhost,OU=development,O=millrace"
RENEWED = "User:CN=127.0.0.1,OU=development,O=millrace"
ALL_OR_NONE = "set broker_tls_certificate and broker_tls_ca on all brokers or on none"


def broker_tls(certificates: Certificates, **changed: str) -> dict[str, Any]:
    return {
        "broker_tls_certificate": certificates.broker,
        "broker_tls_ca": certificates.ca,
        **changed,
    }


def principals(broker: Broker) -> set[str]:
    """Whom the certificates name that other brokers have shown."""
    server = broker.node.broker_server
    assert server is not None
    return {connection.principal for connection in server.connections}


async def greet(caller: Broker, broker_id: int, channel: Channel) -> None:
    """Introduces a broker to another one, on a connection for the channel."""
    node = caller.node
    hello = node.broker.metadata.hello(broker_id)
    await node.peers.call(
        broker_id, channel, hello, BrokerHelloResponse, timeout_ms=HANG_TIMEOUT_MS
    )


@pytest.fixture
def paths(certificates: Certificates, tmp_path: Path) -> dict[str, str]:
    """The certificates by name, with a broker of the other authority, and both authorities."""
    both = tmp_path / "both.pem"
    cas = (certificates.ca, certificates.other_ca)
    both.write_bytes(b"".join(Path(each).read_bytes() for each in cas))
    other = Path(certificates.other_ca).with_name("broker.pem")
    return {**certificates._asdict(), "both_ca": str(both), "other_broker": str(other)}


async def test_acked_records_survive_the_loss_of_their_leader(certificates: Certificates) -> None:
    async with Cluster(3, **SETTINGS, **broker_tls(certificates)) as cluster:
        await create_topic(cluster.servers)
        await cluster.wait_until_in_sync(TOPIC)
        leader = await cluster.leader_of(TOPIC, 0)
        assert principals(cluster.brokers[leader]) == {OF_ALL}
        async with Producer(cluster.servers, acks="all") as producer:
            await send(producer, numbers(0, 500))
            await cluster.kill(leader)
            await send(producer, numbers(500, 1_000))
        assert await cluster.leader_of(TOPIC, 0) != leader
        await cluster.start(leader)
        await cluster.wait_until_in_sync(TOPIC)
        assert [value for _, value in (await read_all(cluster.servers))[0]] == numbers(0, 1_000)


async def test_processes_have_tls_between_them_too(certificates: Certificates) -> None:
    async with ClusterProcesses(3, **SETTINGS, **broker_tls(certificates)) as cluster:
        await create_topic(cluster.servers)
        await cluster.wait_until_in_sync(TOPIC)
        leader = await cluster.leader_of(TOPIC, 0)
        async with Producer(cluster.servers, acks="all") as producer:
            await send(producer, numbers(0, 100))
            await cluster.kill(leader)
            await send(producer, numbers(100, 200))
        assert [value for _, value in (await read_all(cluster.servers))[0]] == numbers(0, 200)


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        ("other_client", "its certificate is refused: unable to get local issuer certificate"),
        ("none", "the TLS handshake failed: peer did not return a certificate"),
        ("plain", "it does not speak TLS"),
    ],
)
async def test_a_stranger_does_not_get_past_the_handshake(
    certificates: Certificates, caplog: pytest.LogCaptureFixture, shown: str, why: str
) -> None:
    async with Cluster(1, **SETTINGS, **broker_tls(certificates)) as cluster:
        broker = cluster.brokers[1]
        server, address = broker.node.broker_server, broker.config.broker_listen_address
        assert server is not None
        assert address is not None
        context = ssl.create_default_context(cafile=certificates.ca)
        if shown == "other_client":
            context.load_cert_chain(certificates.other_client)
        reader, writer = await asyncio.open_connection(
            *address, ssl=None if shown == "plain" else context
        )
        _, port = writer.get_extra_info("sockname")
        Wire(reader, writer, client_id=b"stranger").send(HelloRequest("stranger", "1"))
        with suppress(ConnectionError):
            async with asyncio.timeout(HANG_TIMEOUT_S):
                assert await reader.read() == b""
        writer.close()
        assert server.connections_accepted == 0
    (line,) = [each for each in caplog.messages if "TLS handshake failed" in each]
    assert f"listener=brokers peer=127.0.0.1:{port} " in line
    assert f"reason={why}; a broker needs a certificate of the authorities" in line


async def test_a_renewed_certificate_serves_the_next_connection(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "CHECK_S", 0)
    file = shutil.copy(certificates.broker, tmp_path / "in-use.pem")
    renewed = tmp_path / "renewed"
    renewed.mkdir()
    for name in ("ca.pem", "ca-key.pem"):
        shutil.copy(Path(certificates.ca).with_name(name), renewed)
    make_certificates(renewed, hosts=["127.0.0.1"], clients=[], days=1)
    settings = broker_tls(certificates, broker_tls_certificate=str(file))
    async with Cluster(2, **SETTINGS, **settings) as cluster:
        one, other = cluster.brokers.values()
        await greet(one, 2, Channel.CONTROL)
        assert principals(other) == {OF_ALL}
        shutil.copy(renewed / "broker.pem", file)
        await greet(one, 2, Channel.REPLICA_FETCH)
        assert principals(other) == {OF_ALL, RENEWED}


NOTHING: dict[str, str] = {}
OURS = {"broker_tls_certificate": "broker", "broker_tls_ca": "ca"}
STRANGE = {"broker_tls_certificate": "other_broker", "broker_tls_ca": "other_ca"}
TRUSTING = {"broker_tls_certificate": "other_broker", "broker_tls_ca": "both_ca"}
ENDED = "broker 1 ended the connection before Hello"


@pytest.mark.parametrize(
    ("theirs", "own", "why"),
    [
        (OURS, NOTHING, f"{ENDED}; if it has TLS, {ALL_OR_NONE}"),
        (NOTHING, OURS, f"it does not speak TLS; {ALL_OR_NONE}"),
        (OURS, TRUSTING, f"{ENDED}; if it does not trust this broker's certificate, its log says"),
        (
            OURS,
            STRANGE,
            "its certificate is refused: .*; correct "
            "broker_tls_certificate of broker 1, or broker_tls_ca here",
        ),
    ],
)
async def test_a_broker_that_does_not_find_the_others_says_what_to_do(
    paths: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    theirs: dict[str, str],
    own: dict[str, str],
    why: str,
) -> None:
    monkeypatch.setattr(connections, "CONNECT_TIMEOUT_MS", HANG_TIMEOUT_MS)
    their_files, own_files = (
        {name: paths[path] for name, path in files.items()} for files in (theirs, own)
    )
    async with Cluster(1, **SETTINGS, **their_files) as cluster:
        with pytest.raises(ApiError, match=why):
            async with observing(cluster, quorum_wait_ms=1, **own_files):
                pass


async def test_the_log_says_once_that_brokers_do_not_agree_on_tls(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    def lines(text: str) -> list[str]:
        return [each for each in caplog.messages if text in each]

    async with Cluster(1, **SETTINGS, **broker_tls(certificates)) as cluster:

        async def start() -> None:
            async with observing(cluster):
                pass

        starting = asyncio.create_task(start())
        # The attempts go on, and the side that speaks TLS says of each what it has seen.
        await until(lambda: len(lines("reason=it does not speak TLS")) > 5)
        starting.cancel()
        await asyncio.wait([starting])
    (line,) = lines("no connection to another broker")
    assert f"broker=1 reason={ENDED}; if it has TLS, {ALL_OR_NONE}" in line
