"""Statistics as the admin client reads them, of a real broker."""

from __future__ import annotations

import pytest

from millrace import Admin, Consumer, Producer
from millrace.errors import ConnectionFailed
from millrace.statistics import Metric, Sample
from millrace.sync import Admin as SyncAdmin
from millrace_server.testing import Broker, BrokerThread


async def test_a_client_reads_what_the_broker_holds() -> None:
    async with Broker() as broker, Admin(broker.servers) as admin:
        await admin.create_topic("t")
        async with Producer(broker.servers) as producer:
            for number in range(3):
                await producer.send("t", b"%d" % number)
        found = await admin.describe_statistics(0)
        inside = broker.statistics()
        assert found.node_id == 0
        assert found.software_version and found.uptime_ms >= 0
        assert list(found.metrics) == [each.metric.name for each in inside.metrics]
        for each in inside.metrics:
            metric = found.metrics[each.metric.name]
            assert (metric.kind, metric.unit, metric.help) == (
                each.metric.kind,
                each.metric.unit,
                each.metric.help,
            )
        requests = found.metrics["millrace_requests_total"]
        assert requests.value(api="Produce") == inside.value(requests.name, api="Produce") > 0
        flushes = found.metrics["millrace_flush_duration_seconds"]
        assert flushes.count() == inside.count(flushes.name)
        assert flushes.value() == pytest.approx(inside.value(flushes.name) / 1e9)
        assert flushes.bounds[0] == 1e-05


async def test_a_prefix_selects_metrics_and_any_broker_answers() -> None:
    async with Broker() as broker, Admin(broker.servers) as admin:
        found = await admin.describe_statistics(prefix="millrace_log_")
        assert list(found.metrics) == ["millrace_log_reads_total", "millrace_log_size_bytes"]
        assert (await admin.describe_statistics(prefix="none")).metrics == {}


async def test_a_broker_that_the_cluster_does_not_have_is_named_at_once() -> None:
    async with Broker() as broker, Admin(broker.servers) as admin:
        with pytest.raises(ConnectionFailed, match="no broker 7"):
            await admin.describe_statistics(7)


async def test_statistics_of_many_topics_come_whole() -> None:
    async with Broker(topic={"durability": "os"}) as broker, Admin(broker.servers) as admin:
        names = [f"topic-{number:03}" for number in range(250)]
        for name in names:
            await admin.create_topic(name)
        found = await admin.describe_statistics(prefix="millrace_log_size_bytes")
        samples = found.metrics["millrace_log_size_bytes"].samples
        topics = [sample.labels["topic"] for sample in samples]
        assert [topic for topic in topics if topic in names] == names


async def test_a_group_with_a_member_is_stable() -> None:
    async with Broker() as broker, Admin(broker.servers) as admin:
        await admin.create_topic("t")
        async with Producer(broker.servers) as producer:
            await producer.send("t", b"v")
        async with Consumer(broker.servers, "t", group="g", auto_offset_reset="earliest") as reader:
            await reader.getone()
            found = await admin.describe_statistics(prefix="millrace_groups")
            assert found.metrics["millrace_groups"].value(state="Stable") == 1
        found = await admin.describe_statistics(prefix="millrace_groups")
        assert found.metrics["millrace_groups"].value(state="Empty") == 1


def test_the_synchronous_client_has_the_same() -> None:
    with BrokerThread() as broker, SyncAdmin(broker.servers) as admin:
        found = admin.describe_statistics(0, prefix="millrace_partitions")
        assert found.metrics["millrace_partitions"].value(state="online") > 0


def test_quantiles_are_estimated_within_a_bucket() -> None:
    samples = (
        Sample({"api": "a"}, 1.0, (0, 8, 2, 0)),
        Sample({"api": "b"}, 1.0, (0, 0, 0, 3)),
        Sample({"api": "c"}, 0.0, (0, 0, 0, 0)),
    )
    metric = Metric("m_seconds", "histogram", "seconds", "", (0.1, 0.2, 0.4), samples)
    assert metric.quantile(0.4, api="a") == pytest.approx(0.15)
    assert metric.quantile(0.9, api="a") == pytest.approx(0.3)
    assert metric.quantile(0.99, api="b") == 0.4, "the largest bound"
    assert metric.quantile(0.5, api="c") is None
    assert metric.quantile(0.5, api="none") is None
    assert metric.count() == 13
    assert metric.value(api="a") == 1.0
