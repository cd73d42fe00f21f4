"""What a run of `millrace bench` has counted, and its summary.

Owns the shape of the summary: the columns, and the keys of `--json`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from millrace_cli.bench.latency_histogram import LatencyHistogram
from millrace_cli.json_output import print_json
from millrace_cli.progress_display import Shown
from millrace_cli.table import show

BYTES_PER_MB = 1_000_000
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}


@dataclass
class Measurement:
    """One run: from `start` to the last record that was counted."""

    records_max: int | None
    """Records of the whole run, for its progress."""
    records: int = 0
    size: int = 0
    """Bytes of the keys and values of `records`."""
    missing: int | None = None
    """Records that were sent and are not among `records`; None where that is not known."""
    latency: LatencyHistogram = field(default_factory=LatencyHistogram)
    cpu_s: float = 0.0
    """CPU time of this process, in all its threads, until the last record."""
    seconds: float = 0.0
    _start_ns: int = 0
    _cpu_start_s: float = 0.0

    def start(self) -> None:
        """Begins the run."""
        self._start_ns = time.monotonic_ns()
        self._cpu_start_s = time.process_time()

    def count(self, records: int, size: int) -> None:
        """Counts records that have come to their end, and their bytes."""
        self.records += records
        self.size += size
        self.seconds = (time.monotonic_ns() - self._start_ns) / 1e9
        self.cpu_s = time.process_time() - self._cpu_start_s

    def shown(self, seconds: float) -> Shown:
        """The progress of the run."""
        if not self.records:
            return Shown((0,), "waiting for the first record", 0, self.records_max)
        figures = f"{self.records:,} records, {self.records / seconds:,.0f} records/s"
        figures += f", {self.size / seconds / BYTES_PER_MB:,.2f} MB/s"
        if self.latency.count:
            figures += f", p99 {self.latency.quantile(0.99):,.2f} ms"
        return Shown((self.records,), figures, self.records, self.records_max)

    def summary(self, missing: str) -> dict[str, Any]:
        """The figures by the keys of `--json`; `missing` is the name of what is missing."""
        seconds = max(self.seconds, 1e-9)
        latency = self.latency
        return {
            "records": self.records,
            **({missing: self.missing} if missing else {}),
            "bytes": self.size,
            "seconds": round(self.seconds, 6),
            "records_per_second": round(self.records / seconds, 3),
            "mb_per_second": round(self.size / seconds / BYTES_PER_MB, 6),
            "latency_ms": {
                "mean": _rounded(latency.mean_ms),
                **{name: _rounded(latency.quantile(each)) for name, each in QUANTILES.items()},
                "max": _rounded(latency.max_ms if latency.count else None),
            },
            "cpu_seconds": round(self.cpu_s, 6),
        }


@contextmanager
def summarized(measurement: Measurement, missing: str, *, as_json: bool) -> Iterator[None]:
    """Prints the summary after the block; after a failure only if there is something in it."""
    try:
        yield
    except BaseException:
        if measurement.records or measurement.missing:
            _print(measurement.summary(missing), as_json=as_json)
        raise
    _print(measurement.summary(missing), as_json=as_json)


def _print(summary: dict[str, Any], *, as_json: bool) -> None:
    """To stdout: a JSON object, or one row."""
    if as_json:
        print_json(summary)
        return
    columns: list[str] = []
    row: list[object] = []
    for key, value in summary.items():
        if key == "latency_ms":
            columns += [f"{name} ms #" for name in value]
            row += [None if ms is None else f"{ms:.3f}" for ms in value.values()]
        else:
            name, digits = _COLUMNS.get(key, (key.replace("_", " "), None))
            columns.append(f"{name} #")
            row.append(value if digits is None else f"{value:.{digits}f}")
    show(columns, [row])


_COLUMNS = {
    "seconds": ("seconds", 3),
    "records_per_second": ("records/s", 0),
    "mb_per_second": ("MB/s", 2),
    "cpu_seconds": ("CPU s", 2),
}


def _rounded(ms: float | None) -> float | None:
    return None if ms is None else round(ms, 6)
