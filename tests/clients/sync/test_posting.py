"""Records that blocking callers post: they travel together, and in time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from itertools import islice

import pytest

from millrace import sync as millrace_sync
from millrace.errors import DeliveryFailed
from millrace.sync import SENDS_OBSERVED, Consumer, Producer
from millrace_server.testing import BrokerThread

THREADS = 8
EACH = 2_000


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with BrokerThread() as broker, millrace_sync.Admin(broker.servers) as admin:
        for name in ("lingers", "threads", "hint", "quiet"):
            admin.create_topic(name)
        yield broker.servers


def test_a_posted_record_is_sent_without_a_flush(servers: str) -> None:
    with Producer(servers) as producer, Consumer(servers, "lingers") as consumer:
        for value in (b"a", b"b"):
            producer.post("lingers", value)
            found = consumer.getone()
            assert found is not None
            assert found.value == value


def test_threads_post_together_and_each_keeps_its_order(servers: str) -> None:
    with Producer(servers, linger_ms=1) as producer:

        def post(thread: int) -> None:
            for number in range(EACH):
                producer.post("threads", b"%d" % number, key=b"%d" % thread)

        threads = [threading.Thread(target=post, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
        assert producer.health().failed_records == 0
    found: dict[bytes | None, list[int]] = {}
    with Consumer(servers, "threads") as consumer:
        for record in islice(consumer, THREADS * EACH):
            found.setdefault(record.key, []).append(int(record.value or b""))
    assert found.keys() == {b"%d" % number for number in range(THREADS)}
    assert all(values == list(range(EACH)) for values in found.values())


def test_a_record_that_cannot_be_sent_is_told_by_the_next_flush(servers: str) -> None:
    with Producer(servers, linger_ms=0) as producer:
        producer.post("quiet", "text")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="value_serializer"):
            while True:
                producer.flush()
        # The others are sent all the same.
        for value in (b"a", "text", b"b"):
            producer.post("quiet", value)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="value_serializer"):
            while True:
                producer.flush()
        producer.flush()
        with Consumer(servers, "quiet") as consumer:
            assert [record.value for record in islice(consumer, 2)] == [b"a", b"b"]
        producer.post("nowhere", b"lost")
        with pytest.raises(DeliveryFailed, match="nowhere"):
            while True:
                producer.flush()


def test_many_sends_one_by_one_are_told_of_the_faster_way(
    servers: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow the machine is.
    monkeypatch.setattr(millrace_sync, "SENDS_OBSERVED_MS", 1 << 40)
    with caplog.at_level(logging.WARNING), Producer(servers) as producer:
        for _ in range(2 * SENDS_OBSERVED):
            producer.send("hint", b"x")
    (line,) = [record.getMessage() for record in caplog.records]
    assert "1000 records were sent one by one" in line
    assert "post() and flush(), or send_many()" in line
