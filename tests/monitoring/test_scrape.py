"""What a scrape of a real broker has: the registry, whole, once, in either format."""

from __future__ import annotations

import errno
from itertools import accumulate

import pytest

from millrace import Producer
from millrace_server.disk.os_disk import OsDisk
from millrace_server.monitoring.series import TOPICS_LEFT_OUT
from millrace_server.statistics import Kind, Statistics, metrics
from millrace_server.testing import Broker
from tests.broker.wire import batch, connect
from tests.monitoring.http_client import OPEN_METRICS, Answer, ask, scrape

PROCESS = "process_"


async def test_what_was_produced_is_what_is_counted(broker: Broker) -> None:
    async with connect(broker.port) as wire:
        await wire.create("t")
        before = await scrape(broker.metrics_url)
        for _ in range(5):
            await wire.produce("t", batch(b"one", b"two", b"three"))
        after = await scrape(broker.metrics_url)

    def grown(name: str, **labels: str) -> float:
        return after.value(name, **labels) - before.value(name, **labels)

    assert grown("millrace_requests_total", dialect="native", api="Produce") == 5
    assert grown("millrace_appends_total") == 5
    assert grown("millrace_appended_records_total") == 15
    size = len(batch(b"one", b"two", b"three"))
    assert grown("millrace_appended_bytes_total") == 5 * size
    assert after.value("millrace_log_size_bytes", topic="t") == 5 * size
    assert grown("millrace_flush_duration_seconds_count") == 5
    assert after.value("millrace_ready") == 1


@pytest.mark.parametrize("accept", ["", OPEN_METRICS])
async def test_a_scrape_has_the_values_of_the_registry(broker: Broker, accept: str) -> None:
    async with Producer(broker.servers) as producer, connect(broker.port) as wire:
        await wire.create("t")
        await producer.send("t", b"v")
        await wire.produce("none", batch(b"v"))
    scraped = await scrape(broker.metrics_url, accept)
    check_same(scraped, broker.statistics())


def check_same(scraped: Answer, statistics: Statistics) -> None:
    """Every series of a scrape is a value of the registry; all values but empty histograms are."""
    expected = {}
    for found in statistics.metrics:
        metric, scale = found.metric, 10**found.metric.decimals
        for sample in found.samples:
            labels = dict(zip(metric.labels, sample.labels, strict=True))
            key = frozenset(labels.items())
            if metric.kind is not Kind.HISTOGRAM:
                expected[metric.name, key] = sample.value / scale
            elif sample.count or not labels:
                expected[f"{metric.name}_sum", key] = sample.value / scale
                expected[f"{metric.name}_count", key] = sample.count
                bounds = [*(bound / scale for bound in metric.bounds), float("inf")]
                for bound, count in zip(bounds, accumulate(sample.buckets), strict=True):
                    expected[f"{metric.name}_bucket", key | {("le", bound)}] = count
    found_values = {
        (
            sample.name,
            frozenset((k, float(v) if k == "le" else v) for k, v in sample.labels.items()),
        ): sample.value
        for sample in scraped.samples
        if not sample.name.startswith((PROCESS, TOPICS_LEFT_OUT.name))
    }
    moving = metrics.DISK_FREE.name
    assert found_values.keys() == expected.keys()
    differences = [key for key in expected if found_values[key] != expected[key]]
    assert [key for key in differences if key[0] != moving] == []


async def test_every_metric_has_its_kind_unit_and_meaning(broker: Broker) -> None:
    families = (await scrape(broker.metrics_url, OPEN_METRICS)).families
    for metric in (*metrics.METRICS, TOPICS_LEFT_OUT):
        family = families.pop(metric.name.removesuffix("_total"))
        assert (family.type, family.unit) == (metric.kind, metric.unit)
        assert family.documentation == metric.help
    assert all(name.startswith(PROCESS) for name in families)


async def test_the_process_is_measured(broker: Broker) -> None:
    scraped = await scrape(broker.metrics_url)
    for name in ("cpu_seconds_total", "resident_memory_bytes", "start_time_seconds", "open_fds"):
        assert scraped.value(f"process_{name}") > 0


async def test_the_format_is_the_one_that_is_asked_for(broker: Broker) -> None:
    plain = await scrape(broker.metrics_url)
    assert plain.headers["content-type"].startswith("text/plain; version=")
    assert not plain.text.endswith("# EOF\n")
    # As Prometheus asks.
    accept = f"{OPEN_METRICS};q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
    other = await scrape(broker.metrics_url, accept)
    assert other.headers["content-type"].startswith("application/openmetrics-text; version=")
    assert other.text.endswith("# EOF\n")


async def test_a_disk_that_cannot_be_measured_hides_nothing_else(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(disk: OsDisk) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(OsDisk, "space", fail)
    scraped = await scrape(broker.metrics_url)
    assert scraped.value("millrace_ready") == 1
    assert "millrace_disk_free_bytes" not in {sample.name for sample in scraped.samples}
    monkeypatch.undo()
    scraped = await scrape(broker.metrics_url)
    assert (
        0 < scraped.value("millrace_disk_free_bytes") <= scraped.value("millrace_disk_size_bytes")
    )


async def test_a_broker_answers_at_the_same_address_after_a_restart(broker: Broker) -> None:
    url = broker.metrics_url
    await broker.restart()
    assert broker.metrics_url == url
    assert (await ask(url, "/health/ready")).status == 200


async def test_a_broker_without_the_setting_has_no_address_for_metrics() -> None:
    async with Broker() as broker:
        with pytest.raises(RuntimeError, match="no metrics_listen"):
            _ = broker.metrics_url
