"""DescribeStatistics: the registry of this broker as messages."""

from __future__ import annotations

from millrace_protocol.messages.statistics import (
    DescribedMetric,
    DescribeStatisticsRequest,
    DescribeStatisticsResponse,
    MetricSample,
)
from millrace_server.loop.fair_scheduler import FairScheduler
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services
from millrace_server.statistics.registry import MetricSamples

CHUNK_SAMPLES = 100
"""Made into messages in one chunk, some 100 us."""


async def handle(
    services: Services, context: RequestContext, request: DescribeStatisticsRequest
) -> DescribeStatisticsResponse:
    """Reads the metrics that are asked for."""
    service = services.statistics
    found = await service.read(context, request.prefix)
    return DescribeStatisticsResponse(
        services.cluster.node_id,
        service.software_version,
        service.uptime_ms,
        tuple([await _described(each, services.scheduler) for each in found]),
    )


async def _described(found: MetricSamples, scheduler: FairScheduler) -> DescribedMetric:
    samples: list[MetricSample] = []
    for number, sample in enumerate(found.samples, 1):
        samples.append(MetricSample(sample.labels, sample.value, sample.buckets))
        if not number % CHUNK_SAMPLES:
            await scheduler.yield_()
    metric = found.metric
    return DescribedMetric(
        metric.name,
        metric.kind,
        metric.unit,
        metric.decimals,
        metric.help,
        metric.labels,
        metric.bounds,
        tuple(samples),
    )
