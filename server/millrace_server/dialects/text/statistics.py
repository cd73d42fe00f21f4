"""STATS: one metric a line, in the form of Prometheus's text format where it has one."""

from __future__ import annotations

from millrace_protocol.histogram import quantile
from millrace_server.dialects.text.lines import ANSWER_CHARACTERS, Lines, counted, word
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services
from millrace_server.statistics import Kind, Metric, Sample

CHUNK_SAMPLES = 100
"""Made into lines in one go, some 200 us."""


async def stats(services: Services, context: RequestContext, prefix: str = "") -> Lines:
    """A line for each sample; those of an answer that is too long are left out."""
    samples = [
        (found.metric, sample)
        for found in await services.statistics.read(context, prefix)
        for sample in found.samples
    ]
    lines: Lines = []
    characters = 0
    for metric, sample in samples:
        if characters >= ANSWER_CHARACTERS:
            return [*lines, f"OK {len(lines)} of {counted(len(samples), 'value')}"]
        lines.append(_line(metric, sample))
        characters += len(lines[-1])
        if not len(lines) % CHUNK_SAMPLES:
            await services.scheduler.yield_()
    return [*lines, f"OK {counted(len(lines), 'value')}"]


def _line(metric: Metric, sample: Sample) -> str:
    labels = ",".join(
        f'{name}="{word(value)}"' for name, value in zip(metric.labels, sample.labels, strict=True)
    )
    name = f"{metric.name}{{{labels}}}" if labels else metric.name
    if metric.kind is not Kind.HISTOGRAM:
        return f"{name} {_number(metric, sample.value)}"
    middle, high = (quantile(metric.bounds, sample.buckets, each) for each in (0.5, 0.99))
    return (
        f"{name} count {sample.count} sum {_number(metric, sample.value)} "
        f"p50 {_number(metric, middle)} p99 {_number(metric, high)}"
    )


def _number(metric: Metric, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value / 10**metric.decimals:.6g}" if metric.decimals else str(value)
