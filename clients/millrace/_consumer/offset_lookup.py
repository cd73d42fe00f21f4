"""Positions that are looked up: what the answers of brokers mean."""

from __future__ import annotations

from millrace._broker_error import broker_error
from millrace._consumer.fetch_plan import Lookup
from millrace._consumer.positions import Positions
from millrace.errors import MillraceError
from millrace_protocol.messages.list_offsets import LATEST, ListOffsetsResult


def on_looked_up(
    positions: Positions, lookup: Lookup, results: tuple[ListOffsetsResult, ...], now_ms: int
) -> None:
    """A broker answered a lookup; offset -1, where no record is that late, is the end."""
    by_partition = {(result.topic, result.partition): result for result in results}
    for state, version in lookup.asked:
        if state.version != version:
            continue
        state.in_flight = False
        result = by_partition.get(state.where)
        if result is None:
            positions.back_off(state, now_ms)
        elif result.error_code:
            error = broker_error(result.error_code, result.error_message, about=str(state.where))
            positions.failed(state, error, now_ms)
        elif result.offset < 0:
            state.reset = LATEST
        else:
            positions.recovered(state)
            state.position = state.fetch_offset = result.offset
            state.reset = None


def on_lookup_failed(
    positions: Positions, lookup: Lookup, error: MillraceError, now_ms: int
) -> None:
    """A lookup failed: tries again later, or raises to the user what no retry helps."""
    for state, version in lookup.asked:
        if state.version == version:
            state.in_flight = False
            positions.stale_topics.add(state.where.topic)
            positions.failed(state, error, now_ms)
