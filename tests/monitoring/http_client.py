"""HTTP for tests: one request on a socket of its own, and the answer as it came."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import Metric
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as open_metrics_families,
)
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


@dataclass
class Answer:
    """A response whose connection the broker has ended."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def families(self) -> dict[str, Metric]:
        """The metrics of a scrape by name."""
        return {each.name: each for each in families(self.text, self.headers["content-type"])}

    @property
    def samples(self) -> list[Sample]:
        """The samples of all of them."""
        return [sample for family in self.families.values() for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        """The sum of the series with these labels, whatever the others are."""
        found = [
            sample.value
            for sample in self.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert found, f"there is no {name} with {labels}"
        return sum(found)


def families(text: str, media_type: str) -> list[Metric]:
    """The metrics of a text in either format, by Prometheus's own parser."""
    if media_type.startswith("application/openmetrics-text"):
        return list(open_metrics_families(text))  # type: ignore[no-untyped-call]
    return list(text_string_to_metric_families(text))


def parsed(raw: bytes) -> Answer:
    """What the broker has sent on one connection."""
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *fields = head.decode("latin-1").split("\r\n")
    version, status, _ = first.split(" ", 2)
    assert version == "HTTP/1.1"
    headers = {name.lower(): value for name, value in (field.split(": ", 1) for field in fields)}
    return Answer(int(status), headers, body)


async def exchange(url: str, *sent: bytes, ends: bool = False) -> bytes:
    """What the broker sends for these bytes, until it ends the connection; `ends` our side first.

    A connection that it resets has sent nothing.
    """
    host, port = address(url)
    reader, writer = await asyncio.open_connection(host, port)
    received = b""
    with suppress(ConnectionError):
        for part in sent:
            writer.write(part)
        await writer.drain()
        if ends:
            writer.write_eof()
        received = await reader.read()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
    return received


async def ask(url: str, path: str, *, method: str = "GET", fields: Iterable[str] = ()) -> Answer:
    """The answer to one request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: test", *fields, "", ""]
    return parsed(await exchange(url, "\r\n".join(lines).encode()))


async def scrape(url: str, accept: str = "") -> Answer:
    """The metrics of a broker."""
    answer = await ask(url, "/metrics", fields=[f"Accept: {accept}"] if accept else [])
    assert answer.status == 200, answer.text
    return answer


def address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None
    return parts.hostname, parts.port
