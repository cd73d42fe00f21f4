"""Listeners with TLS: the project's own clients, and netcat's lines, on a real socket."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest

from millrace import Admin, Consumer, Producer, sync
from millrace.config import ClientOptions
from millrace.errors import ConfigError, ConnectionFailed, ForeignPort
from millrace_server.principal import ANONYMOUS
from millrace_server.testing import Broker, BrokerThread
from tests.tls.conftest import Certificates

BOTH = "127.0.0.1:0, tls://127.0.0.1:0"
LARGE = [bytes([number]) * 3_000_000 for number in range(4)]
SMALL = [b"%d" % number for number in range(2_000)]


@pytest.fixture
async def broker(certificates: Certificates) -> AsyncIterator[Broker]:
    """A broker with a plain listener and one with TLS."""
    async with Broker(listen=BOTH, tls_certificate=certificates.broker) as running:
        async with Admin(running.servers) as admin:
            await admin.create_topic("t", configs={"max.message.bytes": "4000000"})
        yield running


async def read(servers: str, count: int, **settings: Any) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with Consumer(servers, "t", start="earliest", **settings) as consumer:
        async for record in consumer:
            found.append(record.value)
            if len(found) == count:
                return found
    raise AssertionError("the consumer ended")


async def test_records_are_the_same_on_both_listeners(
    broker: Broker, certificates: Certificates
) -> None:
    """Frames of many sizes: one read of TLS holds several of them, or a part of one."""
    plain, with_tls = broker.servers, broker.servers_of("tls")
    assert with_tls.startswith("tls://127.0.0.1:")
    async with Producer(with_tls, tls_ca=certificates.ca) as producer:
        await producer.send_many("t", SMALL)
        for value in LARGE:
            await producer.send("t", value)
    wanted = SMALL + LARGE
    assert await read(plain, len(wanted)) == wanted
    assert await read(with_tls, len(wanted), tls_ca=certificates.ca) == wanted


async def test_each_listener_tells_its_own_address(
    broker: Broker, certificates: Certificates
) -> None:
    trusting = {"plain": ClientOptions(), "tls": ClientOptions(tls_ca=certificates.ca)}
    for name, settings in trusting.items():
        async with Admin(broker.servers_of(name), **settings) as admin:
            (found,) = (await admin.describe_cluster()).brokers
            assert f"127.0.0.1:{found.port}" == broker.servers_of(name).removeprefix("tls://")


async def test_a_listener_may_be_known_by_another_address(certificates: Certificates) -> None:
    async with Broker(
        listen=BOTH, advertise="tls=localhost:9999", tls_certificate=certificates.broker
    ) as running:
        async with Admin(running.servers) as admin:
            (found,) = (await admin.describe_cluster()).brokers
            assert found.port == running.port
        with pytest.raises(ConnectionFailed, match=r"advertises another address.*localhost:9999"):
            await Admin(running.servers_of("tls"), tls_ca=certificates.ca).start()


async def test_listeners_have_their_ports_again_after_a_restart(
    broker: Broker, certificates: Certificates
) -> None:
    before = broker.servers_of("plain"), broker.servers_of("tls")
    await broker.restart()
    assert (broker.servers_of("plain"), broker.servers_of("tls")) == before
    async with Producer(before[1], tls_ca=certificates.ca) as producer:
        await producer.send("t", b"v")


@pytest.mark.parametrize(
    ("trusted", "shown", "why"),
    [("other_ca", "broker", "unable to get local issuer"), ("ca", "other_host", "IP address")],
)
async def test_a_broker_that_cannot_prove_its_name_is_refused(
    certificates: Certificates, trusted: str, shown: str, why: str
) -> None:
    certificate = getattr(certificates, shown)
    async with Broker(listen="tls://127.0.0.1:0", tls_certificate=certificate) as running:
        with pytest.raises(ConnectionFailed, match=f"its certificate is refused: .*{why}"):
            await Admin(running.servers, tls_ca=getattr(certificates, trusted)).start()


async def test_the_authorities_of_the_system_are_the_default(broker: Broker) -> None:
    with pytest.raises(ConnectionFailed, match="its certificate is refused"):
        await Admin(broker.servers_of("tls")).start()


async def test_a_client_says_that_only_one_side_speaks_tls(
    broker: Broker, certificates: Certificates
) -> None:
    port = broker.servers_of("tls").removeprefix("tls://")
    with pytest.raises(ForeignPort, match="it speaks TLS; put tls:// before the address"):
        await Admin(port).start()
    with pytest.raises(ConnectionFailed, match="it does not speak TLS"):
        await Admin(f"tls://{broker.servers}", tls_ca=certificates.ca).start()


@pytest.mark.parametrize(
    ("servers", "settings", "why"),
    [
        ("localhost:1", {"tls_ca": "ca.pem"}, "put tls:// before the address, or set tls=True"),
        ("tls://a:1,b:2", {}, "some addresses begin with tls:// and others do not"),
        ("tls://a:1", {"tls_ca": "/no/such/file"}, "/no/such/file cannot be read: No such file"),
        ("tls://a:1", {"tls_ca": __file__}, "is no PEM file of what is needed"),
        ("tls://a:1", {"tls_certificate": "/no/such/file"}, "cannot be read: No such file"),
        ("tls://a:1", {"tls_key": "key.pem"}, "needs the certificate of the key"),
    ],
)
def test_settings_that_cannot_be_are_refused_where_the_client_is_made(
    servers: str, settings: ClientOptions, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        Admin(servers, **settings)


def test_a_key_of_another_certificate_is_refused(certificates: Certificates) -> None:
    with pytest.raises(ConfigError, match="the key is not that of the certificate"):
        Admin("tls://a:1", tls_certificate=certificates.broker, tls_key=certificates.client)


async def test_clients_are_known_by_their_certificates(certificates: Certificates) -> None:
    async with Broker(
        listen=BOTH,
        tls_certificate=certificates.broker,
        tls_client_ca=certificates.ca,
        authorization="off",
    ) as running:
        servers = running.servers_of("tls")
        async with (
            Admin(servers, tls_ca=certificates.ca, tls_certificate=certificates.client),
            Admin(running.servers),
        ):
            principals = {each.principal for each in running.node.server.connections}
        assert principals == {ANONYMOUS, "User:CN=loader,OU=development,O=millrace"}


@pytest.mark.parametrize("shown", [None, "other_client"])
async def test_a_client_without_a_certificate_of_the_authority_is_refused(
    certificates: Certificates, shown: str | None
) -> None:
    settings = ClientOptions(tls_ca=certificates.ca)
    if shown is not None:
        settings["tls_certificate"] = getattr(certificates, shown)
    async with Broker(
        listen="tls://127.0.0.1:0",
        tls_certificate=certificates.broker,
        tls_client_ca=certificates.ca,
        authorization="off",
    ) as running:
        with pytest.raises(ConnectionFailed):
            await Admin(running.servers, **settings).start()
        assert not running.node.server.connections_accepted


async def test_netcat_lines_are_answered_in_tls(broker: Broker, certificates: Certificates) -> None:
    port = int(broker.servers_of("tls").rpartition(":")[2])
    trusted = ssl.create_default_context(cafile=certificates.ca)
    reader, writer = await asyncio.open_connection("localhost", port, ssl=trusted)
    writer.write(b"HELP\n")
    assert b"HELP" in await reader.readline()
    writer.close()
    await writer.wait_closed()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_versions_before_tls_1_2_are_refused(
    broker: Broker, certificates: Certificates
) -> None:
    port = int(broker.servers_of("tls").rpartition(":")[2])
    for version in (ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        trusted = ssl.create_default_context(cafile=certificates.ca)
        trusted.set_ciphers("ALL:@SECLEVEL=0")
        trusted.minimum_version = trusted.maximum_version = version
        if version is ssl.TLSVersion.TLSv1_1:
            with pytest.raises(OSError):
                await asyncio.open_connection("localhost", port, ssl=trusted)
            continue
        _, writer = await asyncio.open_connection("localhost", port, ssl=trusted)
        assert writer.get_extra_info("ssl_object").version() == version.name.replace("_", ".")
        writer.close()
        await writer.wait_closed()


def test_blocking_clients_speak_tls(certificates: Certificates) -> None:
    with BrokerThread(listen=BOTH, tls_certificate=certificates.broker) as running:
        servers = running.servers_of("tls")
        with sync.Admin(running.servers) as admin:
            admin.create_topic("t")
        with sync.Producer(servers, tls_ca=certificates.ca) as producer:
            assert producer.send("t", b"v").offset == 0
