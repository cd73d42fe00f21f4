"""The wire formats of a broker. A dialect is one folder here, and one line in `dialects_of`."""

from __future__ import annotations

from millrace_protocol.api import Listener
from millrace_server.config import BrokerConfig
from millrace_server.dialects.kafka.dialect import KafkaDialect
from millrace_server.dialects.native.dialect import NativeDialect
from millrace_server.dialects.native.peer_handlers import PEER_HANDLERS
from millrace_server.dialects.text.dialect import TextDialect
from millrace_server.net.dialect import Dialect
from millrace_server.services.services import Services


def broker_dialects_of(services: Services, config: BrokerConfig) -> tuple[Dialect, ...]:
    """The dialect of the listener for brokers."""
    return (NativeDialect(services, config, PEER_HANDLERS, Listener.BROKER),)


def dialects_of(services: Services, config: BrokerConfig) -> tuple[Dialect, ...]:
    """Every dialect, in the order in which they are asked whether they recognize a connection."""
    return (
        TextDialect(services, config),
        KafkaDialect(services, config),
        NativeDialect(services, config),
    )


def clients_of(config: BrokerConfig) -> str:
    """Which clients may connect, for a log line."""
    return "millrace, Kafka, netcat" if config.text_dialect else "millrace, Kafka"
