"""A Prometheus of a test: the real program, on a directory and a port of its own."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from millrace_server.testing.reserved_ports import ReservedPorts

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
PROMETHEUS = shutil.which("prometheus")
PROMTOOL = shutil.which("promtool")
REASON = "needs the program of Debian's package prometheus"
INTERVAL = "100ms"


class Prometheus:
    """What it answers. `ports` are those that it scrapes, by the name of the job."""

    def __init__(self, port: int, ports: Mapping[str, int]) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self.ports = ports

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its API; None while it is not ready."""
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"{self._url}/api/v1/{path}?{query}") as answer:
                return json.load(answer)["data"]
        except urllib.error.URLError:
            return None

    def values(self, query: str) -> list[float]:
        """The values of the series that an expression gives now."""
        data = self.get("query", query=query)
        return [] if data is None else [float(each["value"][1]) for each in data["result"]]

    def firing(self, job: str) -> set[str]:
        """The names of the alerts of a job that fire."""
        data = self.get("alerts") or {"alerts": []}
        return {
            each["labels"]["alertname"]
            for each in data["alerts"]
            if each["state"] == "firing" and each["labels"]["job"] == job
        }

    def until(self, fact: Callable[[], bool]) -> None:
        """Asks until something is so; pytest's limit of time ends a test for which it never is."""
        while not fact():
            pass


@contextmanager
def prometheus(directory: Path, *jobs: str) -> Iterator[Prometheus]:
    """Scrapes a port for each job, all the time and with our rules.

    An alert fires with the first evaluation that finds its cause, and not minutes later.
    """
    assert PROMETHEUS is not None
    (directory / "alerts.yml").write_text(
        re.sub(r"^( +for:) .*$", r"\1 0s", RULES.read_text("utf-8"), flags=re.M)
    )
    reserved = ReservedPorts(len(jobs) + 1)
    port, *ports = reserved.ports
    scraped = [
        {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{each}"]}]}
        for job, each in zip(jobs, ports, strict=True)
    ]
    config = {
        "global": {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL},
        "scrape_configs": scraped,
        "rule_files": ["alerts.yml"],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = [
        PROMETHEUS,
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (directory / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            yield Prometheus(port, dict(zip(jobs, ports, strict=True)))
        finally:
            process.kill()
            reserved.release()
