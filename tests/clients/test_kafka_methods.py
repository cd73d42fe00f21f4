"""Methods by the names that they have in aiokafka and confluent-kafka."""

from __future__ import annotations

from typing import Any

import pytest

from millrace import Admin, Consumer, Producer
from millrace import sync as blocking
from millrace._kafka_methods import METHODS, missing_method

aiokafka = pytest.importorskip("aiokafka")
aiokafka_admin = pytest.importorskip("aiokafka.admin")
confluent_kafka = pytest.importorskip("confluent_kafka")
confluent_admin = pytest.importorskip("confluent_kafka.admin")

THEIRS = (
    (aiokafka.AIOKafkaProducer, confluent_kafka.Producer),
    (aiokafka.AIOKafkaConsumer, confluent_kafka.Consumer),
    (aiokafka_admin.AIOKafkaAdminClient, confluent_admin.AdminClient),
)
OURS = ((Producer, blocking.Producer), (Consumer, blocking.Consumer), (Admin, blocking.Admin))


@pytest.mark.parametrize(
    ("client", "name", "hint"),
    [
        (Producer, "send_and_wait", "did you mean send?"),
        (Producer, "produce", "did you mean send?"),
        (blocking.Producer, "produce", "did you mean post?"),
        (Producer, "poll", "did you mean room?"),
        (blocking.Producer, "poll", "did you mean flush?"),
        (Consumer, "poll", "did you mean getone?"),
        (Consumer, "stop", "did you mean close?"),
        (Consumer, "list_topics", "Admin has list_topics and describe_topics"),
        (blocking.Producer, "begin_transaction", "there are no transactions yet"),
        (Admin, "list_consumer_groups", "did you mean list_groups?"),
        (blocking.Admin, "list_consumer_groups", "did you mean list_groups?"),
    ],
)
def test_a_method_of_a_kafka_client_is_answered_with_the_name_here(
    client: Any, name: str, hint: str
) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(client("localhost:9092"), name)
    expected = f"{client.__name__!r} object has no attribute {name!r}; {hint}"
    assert str(caught.value) == expected


def test_another_name_is_an_error_as_everywhere() -> None:
    with pytest.raises(AttributeError, match=r"^'Producer' object has no attribute 'fly'$"):
        _ = Producer("localhost:9092").fly  # type: ignore[attr-defined]


def test_every_name_of_theirs_is_answered() -> None:
    theirs = [{*dir(each), *dir(other)} for each, other in THEIRS]
    for names, ours in zip(theirs, OURS, strict=True):
        # An outcome of an Admin is awaited.
        for name in METHODS.keys() & names - ({"poll"} if Admin in ours else set()):
            for client in ours:
                assert hasattr(client, name) or "did you mean" in missing_method(client, name)
