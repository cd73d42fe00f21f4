"""The reference of metrics in the manual has what a scrape has."""

from __future__ import annotations

import re

from prometheus_client import ProcessCollector

from manual import site
from millrace_server.monitoring.series import EXPOSED

REFERENCE = site.ROOT / "docs" / "reference" / "metrics.md"


def reference() -> dict[str, str]:
    """The kind of each metric in the reference, by name."""
    page = site.with_parts(REFERENCE.read_text("utf-8"))
    return dict(re.findall(r"^\| `([a-z_]+)` \| (counter|gauge|histogram) \|", page, re.M))


def test_the_reference_has_every_metric_of_a_scrape() -> None:
    process = {family.name: family.type for family in ProcessCollector(registry=None).collect()}
    expected = {metric.name: str(metric.kind) for metric in EXPOSED}
    expected |= {
        f"{name}_total" if kind == "counter" else name: kind for name, kind in process.items()
    }
    assert reference() == expected


def test_names_of_kafka_have_the_form_of_an_mbean() -> None:
    mbean = re.compile(r"[a-z.]+:type=[\w-]+(,[a-z]+=\w+)*( [a-z-]+)?")
    assert [m.name for m in EXPOSED if m.kafka and not mbean.fullmatch(m.kafka)] == []
    assert sum(bool(metric.kafka) for metric in EXPOSED) > 20
