"""The files in `deploy` for Prometheus and Grafana, and their pages in the manual, fit together."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from millrace_server.monitoring.series import EXPOSED
from millrace_server.statistics import Kind
from millrace_server.testing import BrokerThread
from tests.monitoring.prometheus import PROMTOOL, REASON, ROOT, RULES
from tests.monitoring.test_reference import reference
from tests.page import BLOCK

DASHBOARD = ROOT / "deploy" / "grafana" / "millrace.json"
RULE_TESTS = Path(__file__).with_name("alert_rules.yml")
RUNBOOK = ROOT / "docs" / "operations" / "alerts.md"
WATCH = ROOT / "docs" / "operations" / "watch.md"
ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule
    for group in yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    for rule in group["rules"]
}
PARTS = ("**Means.** ", "**Look.** ", "**Do.** ")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason=REASON)


def series_names() -> set[str]:
    """Every name of a series that a query may have."""
    names = {"up"}
    for name, kind in reference().items():
        suffixes = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        names |= {name + suffix for suffix in suffixes}
    return names


def expressions(value: Any) -> Iterator[str]:
    """The queries of a dashboard."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("expr", "query") and isinstance(inner, str):
                yield inner
            else:
                yield from expressions(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from expressions(inner)


def metrics_of(expression: str) -> set[str]:
    """The metrics that a query names: what our names begin with."""
    return set(re.findall(r"\b(?:millrace|process)_[a-z_]+|\bup\b", expression))


def test_every_metric_of_a_rule_is_in_the_reference() -> None:
    for name, rule in ALERTS.items():
        found = metrics_of(rule["expr"])
        assert found, name
        assert found <= series_names(), name


def test_every_metric_of_the_dashboard_is_in_the_reference() -> None:
    queries = list(expressions(json.loads(DASHBOARD.read_text("utf-8"))))
    found = {name for query in queries for name in metrics_of(query)}
    assert found <= series_names()
    assert len(found) > 25


def test_a_query_of_an_unknown_metric_would_be_found() -> None:
    assert metrics_of("rate(millrace_nothing_total[5m]) / up") == {"millrace_nothing_total", "up"}
    assert "millrace_nothing_total" not in series_names()


def test_the_panels_of_the_dashboard_do_not_overlap_and_say_what_they_show() -> None:
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        own = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert max(x for x, _ in own) < 24, panel["title"]
        assert not own & cells, panel["title"]
        cells |= own
    shown = [panel for panel in panels if panel["type"] != "row"]
    assert all(panel["title"] and panel["description"] for panel in shown)
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_every_alert_has_its_section_and_every_section_its_alert() -> None:
    text = RUNBOOK.read_text("utf-8")
    sections = dict(re.findall(r"^## (\w+)\n((?:.*\n)*?)(?=^## |\Z)", text, re.M))
    assert list(sections) == list(ALERTS)
    for name, section in sections.items():
        assert re.findall(r"^\*\*\w+\.\*\* ", section, re.M) == list(PARTS), name
        assert ALERTS[name]["annotations"]["runbook"] == f"docs/operations/alerts.md#{name.lower()}"
        assert ALERTS[name]["annotations"]["summary"]
        assert ALERTS[name]["labels"]["severity"] in ("page", "ticket")


def test_every_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    fires: dict[str, set[bool]] = {}
    for case in yaml.safe_load(RULE_TESTS.read_text("utf-8"))["tests"]:
        for each in case["alert_rule_test"]:
            fires.setdefault(each["alertname"], set()).add(bool(each.get("exp_alerts")))
    assert fires == {name: {True, False} for name in ALERTS}


def test_a_histogram_is_read_by_its_series() -> None:
    kinds = {metric.name: metric.kind for metric in EXPOSED}
    assert kinds["millrace_flush_duration_seconds"] is Kind.HISTOGRAM
    assert "millrace_flush_duration_seconds" not in series_names()


def promtool(*arguments: str, cwd: Path = ROOT, stdin: str = "") -> None:
    """Runs it; what it finds wrong is the error."""
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, *arguments], input=stdin, cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_promtool_finds_no_fault_in_the_rules() -> None:
    promtool("check", "rules", "--lint-fatal", str(RULES))


@needs_promtool
def test_promtool_finds_no_fault_in_the_configuration_of_the_manual(tmp_path: Path) -> None:
    blocks = {title: body for _, title, body in BLOCK.findall(WATCH.read_text("utf-8"))}
    (tmp_path / "prometheus.yml").write_text(blocks["prometheus.yml"])
    shutil.copy(RULES, tmp_path / "alerts.yml")
    promtool("check", "config", "prometheus.yml", cwd=tmp_path)


@needs_promtool
def test_the_alerts_fire_when_they_are_to_and_not_before() -> None:
    promtool("test", "rules", RULE_TESTS.name, cwd=RULE_TESTS.parent)


@needs_promtool
def test_promtool_finds_no_fault_in_the_names_and_units_of_a_scrape() -> None:
    with (
        BrokerThread(metrics_listen="0") as broker,
        urllib.request.urlopen(f"{broker.metrics_url}/metrics") as answer,
    ):
        text = answer.read().decode()
    promtool("check", "metrics", stdin=text)
