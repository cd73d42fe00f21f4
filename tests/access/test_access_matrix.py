"""Every api by every principal with every right, in all dialects: allowed exactly where it should.

`rights.py` says once more what each request needs; `any_request.py` makes the requests.
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from millrace_protocol.acls import Operation, PatternType, Permission, ResourceType
from millrace_protocol.api import APIS, Listener
from millrace_protocol.codec import decode
from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka.apis import KAFKA_APIS, KafkaApi
from millrace_protocol.kafka.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from millrace_server.dialects.text.commands import COMMANDS
from millrace_server.metadata.acls import AclEntry
from millrace_server.services.request_context import THIS_BROKER
from millrace_server.testing import Broker
from tests.access.any_request import any_request, codes_of
from tests.access.conftest import set_acls
from tests.access.rights import (
    KAFKA,
    NAMES,
    NATIVE,
    RIGHTS,
    TEXT,
    Right,
    implied,
    right,
)
from tests.broker.wire import Text, Wire
from tests.kafka.kafka_wire import KafkaWire
from tests.sasl.conftest import USER, port_of
from tests.sasl.test_sasl_listeners import SHA_256, log_in, scram_client
from tests.tls.conftest import Certificates

PRINCIPALS = {
    "plain": "User:ANONYMOUS",
    "sasl": f"User:{USER}",
    "tls": "User:CN=loader,OU=development,O=millrace",
}
"""By the listener that a client comes from."""
REFUSED = {
    int(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    int(ErrorCode.GROUP_AUTHORIZATION_FAILED),
    int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
}
ALL = [right(f"ALL {kind}") for kind in ("topic", "group", "cluster")]
Ask = Callable[[], Awaitable[bool]]
"""Sends one request; whether it is allowed."""


class Grant(NamedTuple):
    """Entries of access control, and the rights that they amount to."""

    name: str
    entries: Sequence[AclEntry]
    held: Sequence[Right]
    denied: Sequence[Right] = ()

    def allows(self, needs: str) -> bool:
        has = {each for one in self.held for each in implied(one)}
        left = [
            each
            for each in has
            if not any(
                no.kind is each.kind and no.operation in (each.operation, Operation.ALL)
                for no in self.denied
            )
        ]
        # A right that implies another is not lost with it, and does not give it back.
        return any(
            all(right(each.strip()) in left for each in one.split("+") if each.strip())
            for one in needs.split("|")
        )


def entry(held: Right, principal: str, permission: Permission = Permission.ALLOW) -> AclEntry:
    return AclEntry(
        held.kind,
        PatternType.LITERAL,
        NAMES[held.kind],
        principal,
        "*",
        held.operation,
        permission,
    )


def grants(principal: str) -> Iterator[Grant]:
    yield Grant("nothing", [], [])
    needs = {each for one in (NATIVE, KAFKA, TEXT) for each in one.values() if "+" in each}
    for held in [[one] for one in RIGHTS] + [
        [right(each.strip()) for each in one.split("+")] for one in sorted(needs)
    ]:
        name = " + ".join(f"{each.operation.name} {each.kind.name}" for each in held)
        yield Grant(name, [entry(each, principal) for each in held], held)
    every = [entry(each, principal) for each in ALL]
    for one in RIGHTS:
        denial = entry(one, principal, Permission.DENY)
        yield Grant(f"all but {one.operation.name} {one.kind.name}", [*every, denial], ALL, [one])
    shapes: dict[str, tuple[dict[str, Any], bool]] = {
        "User:*": ({"principal": "User:*"}, True),
        "the address": ({"host": "127.0.0.1"}, True),
        "another principal": ({"principal": f"{principal}x"}, False),
        "another address": ({"host": "10.0.0.1"}, False),
    }
    for name, (changes, is_held) in shapes.items():
        yield Grant(name, [each._replace(**changes) for each in every], ALL if is_held else [])
    prefixed: dict[str, Any] = {"pattern_type": PatternType.PREFIXED, "name": "matrix-"}
    named = [each for each in every if each.resource_type is not ResourceType.CLUSTER]
    yield Grant("a prefix", [each._replace(**prefixed) for each in named], ALL[:2])
    yield Grant("the wildcard", [each._replace(name="*") for each in every], ALL)
    yield Grant("other names", [each._replace(name=f"{each.name}x") for each in named], [])


@asynccontextmanager
async def connected(
    broker: Broker, listener: str, certificates: Certificates
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    context = None
    if listener == "tls":
        context = ssl.create_default_context(cafile=certificates.ca)
        context.load_cert_chain(certificates.client)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port_of(broker, listener), ssl=context
    )
    try:
        yield reader, writer
    finally:
        writer.close()


@asynccontextmanager
async def native(
    broker: Broker, listener: str, certificates: Certificates
) -> AsyncIterator[dict[str, tuple[str, Ask]]]:
    async with connected(broker, listener, certificates) as (reader, writer):
        wire = Wire(reader, writer, client_id=b"")
        if listener == "sasl":
            await log_in(wire, scram_client())
        apis = [each for each in APIS.values() if Listener.CLIENT in each.listeners]
        assert {each.name for each in apis} == NATIVE.keys()

        def asking(request: Any, response: Any) -> Ask:
            async def ask() -> bool:
                wire.send(request)
                header, body = await wire.receive()
                if header.error_code:
                    return header.error_code not in REFUSED
                return REFUSED.isdisjoint(codes_of(decode(response, body, 0)))

            return ask

        yield {
            each.name: (NATIVE[each.name], asking(any_request(each.request), each.response))
            for each in apis
        }


@asynccontextmanager
async def kafka(
    broker: Broker, listener: str, certificates: Certificates
) -> AsyncIterator[dict[str, tuple[str, Ask]]]:
    async with connected(broker, listener, certificates) as (reader, writer):
        wire = KafkaWire(reader, writer)
        if listener == "sasl":
            scram = scram_client()
            await wire.call(SaslHandshakeRequest(SHA_256), 1)
            first = await wire.call(SaslAuthenticateRequest(scram.first()), 2)
            await wire.call(SaslAuthenticateRequest(scram.final(first.auth_bytes)), 2)

        def asking(api: KafkaApi, version: int) -> Ask:
            async def ask() -> bool:
                response = await wire.call(any_request(api.request), version)
                return REFUSED.isdisjoint(codes_of(response))

            return ask

        requests: dict[str, tuple[str, Ask]] = {}
        for api in KAFKA_APIS.values():
            if api.name in LOGIN:
                continue
            for version in {api.min_version, BY_NAME.get(api.name, api.max_version)}:
                requests[f"{api.name} {version}"] = (needs_of(api, version), asking(api, version))
        yield requests


LOGIN = ("SaslHandshake", "SaslAuthenticate")
"""They end a connection that has authenticated; `tests/sasl` has them."""
BY_NAME = {"Produce": 12, "Fetch": 12, "OffsetCommit": 9, "OffsetFetch": 9}
"""The last version that names topics by their names; ids have a test of their own."""


def needs_of(api: KafkaApi, version: int) -> str:
    if (api.name, version) == ("DescribeLogDirs", 1):
        return ""  # It has no field for the error, and an empty response.
    return KAFKA[api.name]


@asynccontextmanager
async def text(
    broker: Broker, listener: str, certificates: Certificates
) -> AsyncIterator[dict[str, tuple[str, Ask]]]:
    async with connected(broker, listener, certificates) as (reader, writer):
        lines = Text(reader, writer)
        if listener == "sasl":
            scram = scram_client()
            (first,) = await lines.ask(f"AUTH {SHA_256} {b64encode(scram.first()).decode()}")
            final = scram.final(b64decode(first.split()[1]))
            (last,) = await lines.ask(f"AUTH {SHA_256} {b64encode(final).decode()}")
            assert last.endswith(f"authenticated as {PRINCIPALS[listener]}")
        assert {line.split()[0] for line in TEXT} == {*COMMANDS, "TAIL"}

        def asking(line: str) -> Ask:
            async def ask() -> bool:
                answer = await lines.ask(line)
                return not any(ErrorCode(code).name in answer[-1] for code in REFUSED)

            return ask

        yield {line: (needs, asking(line)) for line, needs in TEXT.items()}


ANY_NAME = ("InitProducerId", "ListGroups")
"""Who may write to some topic may have a producer id (KIP-679), and a list has what may be seen."""
DIALECTS = {"native": native, "kafka": kafka, "text": text}


@pytest.mark.parametrize("listener", PRINCIPALS)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_request_is_allowed_exactly_where_an_entry_says_so(
    broker: Broker, certificates: Certificates, dialect: str, listener: str
) -> None:
    # The offsets topic, without which a group's partitions are not reached.
    await broker.node.broker.services.groups.find_coordinators(THIS_BROKER, ["any"])
    wrong = []
    async with DIALECTS[dialect](broker, listener, certificates) as requests:
        for grant in grants(PRINCIPALS[listener]):
            await set_acls(broker, grant.entries)
            for name, (needs, ask) in requests.items():
                has_other = grant.name == "other names" and name.split()[0] in ANY_NAME
                is_wanted = grant.allows(needs) or has_other
                if await ask() is not is_wanted:
                    wrong.append(f"{name} with {grant.name}: needs {needs or 'nothing'}")
    assert not wrong, "\n".join(wrong)
