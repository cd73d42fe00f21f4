"""Settings by the names that they have in aiokafka, kafka-python and confluent-kafka."""

from __future__ import annotations

from typing import Any

import pytest

from millrace import Admin, Consumer, Producer
from millrace import sync as millrace_sync
from millrace._kafka_settings import NAMES, NOTES
from millrace.config import ConsumerConfig, ProducerConfig
from millrace.errors import ConfigError


def refusal(client: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        client(*arguments, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("client", "name", "meant"),
    [
        (Producer, "bootstrap_servers", "servers"),
        (Consumer, "bootstrap_servers", "servers"),
        (Admin, "bootstrap_servers", "servers"),
        (Producer, "bootstrap.servers", "servers"),
        (millrace_sync.Producer, "bootstrap_servers", "servers"),
        (millrace_sync.Consumer, "group_id", "group"),
        (Consumer, "group_id", "group"),
        (Consumer, "group.id", "group"),
        (Consumer, "enable_auto_commit", "auto_commit"),
        (Consumer, "enable.auto.commit", "auto_commit"),
        (Consumer, "auto.offset.reset", "auto_offset_reset"),
        (Consumer, "max_partition_fetch_bytes", "max_partition_bytes"),
        (Consumer, "value_serializer", "value_deserializer"),
        (Producer, "value_deserializer", "value_serializer"),
        (Producer, "compression.type", "compression"),
        (Producer, "linger.ms", "linger_ms"),
        (Producer, "max_batch_size", "batch_bytes"),
        (Producer, "enable_idempotence", "idempotent"),
        (Producer, "lingerms", "linger_ms"),
        (Consumer, "topics_start", "there are"),
        (Consumer, "max_poll_records", "getmany"),
        (Producer, "transactional_id", "no transactions"),
        (Producer, "security_protocol", "tls=True"),
        (Producer, "ssl_cafile", "did you mean tls_ca?"),
    ],
)
def test_a_name_of_a_kafka_client_is_answered_with_the_name_here(
    client: Any, name: str, meant: str
) -> None:
    sentence = refusal(client, "localhost:9092", **{name: "x"})
    assert sentence.startswith(f"{name}: no such setting; ")
    assert meant in sentence


def test_the_list_of_settings_has_the_arguments_too() -> None:
    sentence = refusal(Consumer, "localhost:9092", xyz=1)
    for name in ("servers", "group", "start", "value_deserializer", "auto_commit"):
        assert name in sentence.split(";")[1]


def test_servers_come_first_is_said_where_topics_stand_first() -> None:
    sentence = refusal(Consumer, "clicks", bootstrap_servers="localhost:9092")
    assert (
        "They come first, and topics behind them: Consumer('localhost:9092', 'clicks')" in sentence
    )


@pytest.mark.parametrize("client", [Producer, Consumer, Admin, millrace_sync.Producer])
def test_a_dict_of_settings_is_translated(client: Any) -> None:
    sentence = refusal(client, {"bootstrap.servers": "localhost:9092", "group.id": "g"})
    assert "bootstrap.servers is servers, group.id is group" in sentence


def test_every_name_that_is_proposed_is_one_that_is_taken() -> None:
    taken = {
        *ProducerConfig.__dataclass_fields__,
        *ProducerConfig.parameters,
        *ConsumerConfig.__dataclass_fields__,
        *ConsumerConfig.parameters,
    }
    assert set(NAMES.values()) <= taken
    assert not taken & NAMES.keys()
    assert not taken & NOTES.keys()
