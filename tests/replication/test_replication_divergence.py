"""Any two logs that followed the rules come together, and nothing that both have is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millrace_server.log.epochs import EpochEnd
from millrace_server.replication.divergence import disagreement, truncation_offset
from millrace_server.replication.log_view import last_epoch
from millrace_server.replication.messages import Diverging, FetchPosition
from tests.replication.replica_log import Entry, ReplicaLog


def _log(epochs: list[int], *, start_offset: int = 0) -> ReplicaLog:
    log = ReplicaLog(is_synced=True)
    for epoch in epochs:
        log.append(Entry(epoch, "value"))
    log.advance_start(start_offset)
    return log


def _position(log: ReplicaLog) -> FetchPosition:
    return FetchPosition(99, log.end_offset, last_epoch(log), log.start_offset)


_shared = st.lists(st.integers(0, 8), max_size=8).map(sorted)
_own = st.lists(st.integers(10, 18), max_size=8).map(sorted)


@given(shared=_shared, leader=_own, follower=_own, goes_on=st.integers(0, 3), data=st.data())
def test_follower_keeps_exactly_what_both_logs_have(
    shared: list[int], leader: list[int], follower: list[int], goes_on: int, data: st.DataObject
) -> None:
    # One of both may have more of the last shared epoch. After that no epoch is in both logs.
    more = shared[-1:] * goes_on
    is_leader_longer = data.draw(st.booleans())
    leader_epochs = [*shared, *(more if is_leader_longer else []), *(2 * e for e in leader)]
    follower_epochs = [*shared, *([] if is_leader_longer else more)]
    follower_epochs += [2 * epoch + 1 for epoch in follower]
    start_offset = data.draw(st.integers(0, len(shared)))
    leader_log, follower_log = _log(leader_epochs), _log(follower_epochs)
    leader_log.advance_start(start_offset)
    follower_log.advance_start(start_offset)

    rounds = 0
    while (found := disagreement(leader_log, _position(follower_log))) is not None:
        if not isinstance(found, Diverging):
            # Nothing that both logs have is of an epoch that the leader knows.
            assert len(shared) == start_offset
            return
        end_offset = truncation_offset(follower_log, found.end)
        assert end_offset < follower_log.end_offset
        follower_log.truncate_to(end_offset)
        rounds += 1
    assert follower_log.end_offset == len(shared)
    assert rounds <= len(set(follower_epochs)) + 1


def test_epoch_without_a_record_is_not_the_last_one() -> None:
    log = _log([1, 2])
    log.begin_epoch(7)
    assert last_epoch(log) == 2


def test_log_whose_records_are_deleted_knows_the_last_epoch() -> None:
    assert last_epoch(_log([1, 2], start_offset=2)) == 2
    assert last_epoch(_log([])) == -1


def test_replica_without_what_was_deleted_here_is_found_out() -> None:
    # After an unclean election: the leader's history went another way before this log's start.
    leader, follower = _log([1, 4, 4, 4]), _log([1, 3, 3], start_offset=3)
    found = disagreement(leader, _position(follower))
    assert found == Diverging(EpochEnd(1, 1))
    assert truncation_offset(follower, found.end) == 1
