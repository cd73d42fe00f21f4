"""Bar charts as SVG, by hand: no library, and the same bytes for the same figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from benchmarks.results import number_text
from benchmarks.samples import Spread

WIDTH, LABEL_WIDTH, VALUE_WIDTH = 860, 290, 90
BAR, GAP, GROUP_GAP, TOP = 16, 5, 26, 46
COLOURS = {
    "millrace": "#1f6f8b",
    "Apache Kafka": "#b8573b",
    "Redis Streams": "#8a7a2f",
    "NATS JetStream": "#6b5b95",
}
OTHER_COLOUR = "#777777"


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar, with a line from its lowest to its highest round."""

    label: str
    peer: str
    value: Spread


@dataclass(frozen=True, slots=True)
class Chart:
    """Groups of bars on one scale. On a logarithmic scale a bar has a decade for each tenfold."""

    name: str
    title: str
    unit: str
    groups: Sequence[tuple[str, Sequence[Bar]]]
    is_logarithmic: bool = False


def svg(chart: Chart) -> str:
    """The chart as a file. Raises `ValueError` if it has no bars."""
    bars = [bar for _, group in chart.groups for bar in group]
    if not bars:
        raise ValueError(f"{chart.name}: a chart needs a bar")
    height = TOP + sum(GROUP_GAP + len(group) * (BAR + GAP) for _, group in chart.groups) + GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">'
    )
    lines = [
        head,
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="10" y="22" font-size="15" font-weight="bold">{escape(chart.title)}</text>',
        f'<text x="10" y="38" fill="#555555">{escape(chart.unit)}</text>',
    ]
    scale = _Scale.of(bars, is_logarithmic=chart.is_logarithmic)
    y = TOP
    for label, group in chart.groups:
        lines.append(f'<text x="10" y="{y + 16}" font-weight="bold">{escape(label)}</text>')
        y += GROUP_GAP
        for bar in group:
            lines += _bar(bar, y, scale)
            y += BAR + GAP
    return "\n".join([*lines, "</svg>", ""])


@dataclass(frozen=True, slots=True)
class _Scale:
    """From a value to a distance from the axis."""

    least: float
    most: float
    is_logarithmic: bool

    @classmethod
    def of(cls, bars: Sequence[Bar], *, is_logarithmic: bool) -> _Scale:
        most = max(bar.value.high for bar in bars) or 1.0
        least = min((bar.value.low for bar in bars if bar.value.low > 0), default=most)
        # Half a decade below the lowest one, so that its bar has a length.
        return cls(least / 3, max(most, least), is_logarithmic)

    def length(self, value: float) -> float:
        room = WIDTH - LABEL_WIDTH - VALUE_WIDTH
        if not self.is_logarithmic:
            return room * value / self.most
        if value <= self.least:
            return 0.0
        return room * math.log(value / self.least) / math.log(self.most / self.least)


def _bar(bar: Bar, y: int, scale: _Scale) -> Iterator[str]:
    middle = y + BAR / 2
    length = scale.length(bar.value.median)
    low, high = (LABEL_WIDTH + scale.length(end) for end in (bar.value.low, bar.value.high))
    colour = COLOURS.get(bar.peer, OTHER_COLOUR)
    yield (f'<text x="{LABEL_WIDTH - 8}" y="{y + 12}" text-anchor="end">{escape(bar.label)}</text>')
    yield f'<rect x="{LABEL_WIDTH}" y="{y}" width="{length:.1f}" height="{BAR}" fill="{colour}"/>'
    if bar.value.high > bar.value.low:
        yield (
            f'<line x1="{low:.1f}" y1="{middle}" x2="{high:.1f}" y2="{middle}" stroke="#222222"/>'
        )
    end = max(LABEL_WIDTH + length, high) + 6
    yield f'<text x="{end:.1f}" y="{y + 12}">{escape(number_text(bar.value.median))}</text>'
