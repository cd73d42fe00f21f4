"""The demo's plot: the mean delay by hour and carrier, and the number of departures.

Owns the chart, and the least number of departures for a mean. Draws into a file; needs no screen.
"""

from __future__ import annotations

import logging
from pathlib import Path

from millrace_cli.demo.flights import Delay, Delays, per_carrier, per_hour

CARRIERS_MAX = 5
DEPARTURES_MIN = 30
"""Least departures of a point: a mean of fewer depends on single flights."""
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
"""Okabe and Ito's colours, which are distinct for the colour-blind."""


def draw(delays: Delays, file: Path) -> None:
    """Writes the chart as a PNG. Raises `OSError`."""
    # Without this, matplotlib logs its first search for fonts.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 7), dpi=110, layout="constrained")
    late, count = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1.4))
    carriers = per_carrier(delays)
    big = sorted(carriers, key=lambda name: carriers[name].departures, reverse=True)
    for carrier, colour in zip(big[:CARRIERS_MAX], _COLOURS, strict=False):
        points = _points({hour: each for (hour, its), each in delays.items() if its == carrier})
        label = f"{carrier} ({carriers[carrier].departures:,})"
        late.plot(*points, color=colour, marker="o", markersize=4, label=label)
    hours = per_hour(delays)
    total = sum(hours.values(), Delay()).departures
    label = f"all {len(carriers)} carriers ({total:,})"
    late.plot(*_points(hours), color="black", linestyle="--", linewidth=2, label=label)
    late.axhline(0, color="grey", linewidth=0.8)
    late.set_ylabel("mean departure delay (minutes)")
    late.set_title("Departures from New York City in 2013: delay by hour and carrier")
    late.legend(title="carrier (departures)", loc="upper left")
    count.bar(list(hours), [each.departures for each in hours.values()], color="#7f7f7f")
    count.set_ylabel("departures")
    count.set_xlabel(
        "scheduled hour of departure (New York time)\n"
        f"The mean is over departures, those ahead of time included; "
        f"hours with fewer than {DEPARTURES_MIN} have no point."
    )
    count.set_xlim(-0.5, 23.5)
    count.set_xticks(range(24))
    count.yaxis.set_major_formatter("{x:,.0f}")
    for axes in (late, count):
        axes.grid(axis="y", color="#dddddd")
        axes.set_axisbelow(True)
    figure.savefig(file, format="png")


def _points(delays: dict[int, Delay]) -> tuple[list[int], list[float]]:
    drawn = {hour: delays[hour] for hour in sorted(delays)}
    drawn = {hour: each for hour, each in drawn.items() if each.departures >= DEPARTURES_MIN}
    return list(drawn), [each.mean for each in drawn.values()]
