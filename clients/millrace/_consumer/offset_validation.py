"""Positions under a new leader: whether its log has what was read (KIP-320).

Owns what the answers of brokers mean. A leader that was elected uncleanly may lack records that the
consumer has read, and have others in their place, so that an offset alone does not tell.
"""

from __future__ import annotations

from millrace._broker_error import broker_error
from millrace._consumer.fetch_plan import OffsetReset, Validation
from millrace._consumer.partition_state import PartitionState
from millrace._consumer.positions import Positions
from millrace.errors import LogTruncated, MillraceError, UnsupportedVersion
from millrace_protocol.messages.leader_epochs import EpochEndResult


def on_validated(
    positions: Positions,
    validation: Validation,
    results: tuple[EpochEndResult, ...],
    now_ms: int,
) -> None:
    """A broker has said where epochs end in its log."""
    by_partition = {(result.topic, result.partition): result for result in results}
    for state, version, leader_epoch in validation.asked:
        if state.version != version:
            continue
        state.in_flight = False
        result = by_partition.get(state.where)
        if result is None:
            positions.back_off(state, now_ms)
        elif result.error_code:
            error = broker_error(result.error_code, result.error_message, about=str(state.where))
            positions.failed(state, error, now_ms)
        else:
            positions.recovered(state)
            _compare(positions, state, result, leader_epoch, now_ms)


def on_validation_failed(
    positions: Positions, validation: Validation, error: MillraceError, now_ms: int
) -> None:
    """No answer will come. The log of an older broker, which has no such api, is taken as it is."""
    for state, version, leader_epoch in validation.asked:
        if state.version != version:
            continue
        state.in_flight = False
        if isinstance(error, UnsupportedVersion):
            state.valid_epoch = leader_epoch
        else:
            positions.stale_topics.add(state.where.topic)
            positions.failed(state, error, now_ms)


def _compare(
    positions: Positions,
    state: PartitionState,
    result: EpochEndResult,
    leader_epoch: int,
    now_ms: int,
) -> None:
    parting = state.epochs.parting(result.leader_epoch, result.end_offset)
    position = state.position
    assert position is not None
    if parting >= state.fetch_offset:
        # Whether retention has deleted the record there, the fetch will tell.
        state.valid_epoch = leader_epoch
    elif position != state.fetch_offset:
        # Records before it are not consumed yet; the broker will say it again then.
        positions.back_off(state, now_ms)
    else:
        _truncated(positions, state, position, parting)


def _truncated(positions: Positions, state: PartitionState, position: int, parting: int) -> None:
    sentence = (
        f"{state.where}: records from offset {parting} on were read and are not in the log any "
        f"more, because its leader was elected uncleanly; the position is {position}"
    )
    if positions.out_of_range_policy == "error":
        error = LogTruncated(
            f"{sentence}. Seek to {parting} to read what is there now, or set on_out_of_range",
            offset=position,
            truncated_to=parting,
        )
        positions.raise_to_user(state, error)
    else:
        positions.resets.append(
            OffsetReset(state.where, position, f"{sentence}: it goes on at {parting}")
        )
        positions.go_back(state, parting)
