"""Leaders: the elections that follow when brokers go and come back."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_protocol.metadata_records import PartitionChangeRecord
from millrace_server.metadata.broker_registrations import (
    begin_shutdown,
    fence_broker,
    register_broker,
    unfence_broker,
)
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.leader_election import balance_leaders, elect_leaders
from millrace_server.metadata.partition_changes import Election
from millrace_server.metadata.topics import TopicChanges, TopicDefaults
from tests.server.metadata.clusters import (
    CLUSTER,
    OS,
    after,
    cluster,
    inactive,
    partition,
    seen,
    start_of,
    with_topic,
)

MIN_2 = {"min.insync.replicas": "2"}
NO_LEADER = -1


def fenced(image: ClusterImage, *broker_ids: int) -> ClusterImage:
    for broker_id in broker_ids:
        image = after(image, fence_broker(image, {}, broker_id))
    return image


def unfenced(image: ClusterImage, *broker_ids: int) -> ClusterImage:
    for broker_id in broker_ids:
        image = after(image, unfence_broker(image, {}, broker_id))
    return image


def restarted(
    image: ClusterImage,
    broker_id: int,
    *,
    is_clean: bool = False,
    directory_id: uuid.UUID | None = None,
) -> ClusterImage:
    """The image with a new process of a broker whose session is over; it is fenced."""
    epoch = image.brokers[broker_id].epoch
    start = start_of(
        broker_id,
        incarnation=image.end_offset + 1_000,
        previous_epoch=epoch if is_clean else -1,
        directory_id=directory_id,
    )
    records = register_broker(image, {}, start, cluster_id=CLUSTER, has_session=False)
    return after(image, records)


def test_the_next_in_sync_replica_leads_when_the_leader_is_fenced() -> None:
    image = fenced(with_topic(cluster(1, 2, 3), partition((1, 2, 3), (1, 2, 3))), 1)
    assert seen(image) == (2, (2, 3), ())
    found = image.topics["t"].partitions[0]
    assert (found.leader_epoch, found.partition_epoch) == (6, 10)


def test_a_follower_that_is_fenced_leaves_the_isr_and_the_leader_keeps_its_epoch() -> None:
    image = fenced(with_topic(cluster(1, 2, 3), partition((1, 2, 3), (1, 2, 3))), 3)
    assert seen(image) == (1, (1, 2), ())
    assert image.topics["t"].partitions[0].leader_epoch == 5


def test_only_partitions_of_the_broker_change() -> None:
    image = with_topic(
        cluster(1, 2, 3),
        partition((1, 2), (1, 2)),
        partition((2, 3), (2, 3)),
        partition((3, 1), (3,)),
    )
    changed = [r for r in fence_broker(image, {}, 1) if isinstance(r, PartitionChangeRecord)]
    assert [record.partition for record in changed] == [0]


def test_the_last_replica_stays_in_the_isr_and_leads_when_it_is_back() -> None:
    image = fenced(with_topic(cluster(1, 2), partition((1, 2), (1, 2))), 2, 1)
    assert seen(image) == (NO_LEADER, (1,), ())
    assert seen(unfenced(image, 2)) == (NO_LEADER, (1,), ()), "2 was not in the ISR"
    assert seen(unfenced(image, 1)) == (1, (1,), ())


def test_below_min_isr_a_replica_that_leaves_the_isr_stays_eligible() -> None:
    image = with_topic(cluster(1, 2, 3), partition((1, 2, 3), (1, 2, 3)), configs=MIN_2)
    image = fenced(image, 3)
    assert seen(image) == (1, (1, 2), ()), "two are enough, so 3 falls behind"
    image = fenced(image, 2)
    assert seen(image) == (1, (1,), (2,)), "no record is committed without 2"
    image = fenced(image, 1)
    assert seen(image) == (NO_LEADER, (1,), (2,))
    assert seen(unfenced(image, 3)) == (NO_LEADER, (1,), (2,))
    assert seen(unfenced(image, 2)) == (2, (2,), (1,))
    assert seen(unfenced(image, 1)) == (1, (1,), (2,))


def test_a_leader_from_the_elr_comes_before_an_unclean_one() -> None:
    configs = {**MIN_2, "unclean.leader.election.enable": "true"}
    known = partition((3, 1, 2), (1,), leader=NO_LEADER, elr=(2,))
    image = with_topic(inactive(cluster(1, 2, 3), 1, 2), known, configs=configs)
    unclean = unfenced(inactive(image, 3), 3)
    assert seen(unclean) == (3, (3,), ())
    image = unfenced(inactive(image, 3), 2)
    assert seen(image) == (2, (2,), (1,))


def test_no_unclean_leader_unless_the_topic_allows_it() -> None:
    known = partition((1, 2), (1,))
    image = with_topic(cluster(1, 2), known)
    assert seen(fenced(image, 1)) == (NO_LEADER, (1,), ())
    allowed = {"unclean.leader.election.enable": "true"}
    image = with_topic(cluster(1, 2), known, configs=allowed)
    assert seen(fenced(image, 1)) == (2, (2,), ())


def test_the_last_replica_standing_is_not_eligible_after_it_lost_its_tail() -> None:
    """The ISR shrinks to one, that one crashes and loses what was not synced."""
    configs = {**MIN_2, **OS}
    image = with_topic(cluster(1, 2), partition((1, 2), (1, 2)), configs=configs)
    image = fenced(image, 2, 1)
    assert seen(image) == (NO_LEADER, (1,), (2,))
    crashed = unfenced(restarted(image, 1), 1)
    assert seen(crashed) == (NO_LEADER, (), (2,)), "2 has every committed record, 1 may not"
    assert seen(unfenced(crashed, 2)) == (2, (2,), ())
    stopped = unfenced(restarted(image, 1, is_clean=True), 1)
    assert seen(stopped) == (1, (1,), (2,))


def test_a_crash_takes_nothing_from_a_replica_whose_acks_mean_synced() -> None:
    image = with_topic(cluster(1, 2), partition((1, 2), (1, 2)), configs=MIN_2)
    image = restarted(restarted(fenced(image, 2, 1), 1), 2)
    assert seen(unfenced(image, 2)) == (2, (2,), (1,))


def test_the_last_known_leader_leads_when_every_replica_crashed() -> None:
    image = with_topic(cluster(1, 2), partition((1, 2), (1, 2)), configs={**MIN_2, **OS})
    image = restarted(restarted(fenced(image, 2, 1), 2), 1)
    assert seen(image) == (NO_LEADER, (), ())
    assert image.topics["t"].partitions[0].last_known_elr == (1, 2)
    assert seen(unfenced(image, 2)) == (NO_LEADER, (), ()), "2 was behind 1"
    image = unfenced(image, 2, 1)
    assert seen(image) == (1, (1,), ())
    assert image.topics["t"].partitions[0].last_known_elr == ()


def test_the_epoch_of_the_last_leader_that_may_lack_records_is_known() -> None:
    """An unclean election is one, and that of the last known leader; none else."""
    crashed = with_topic(cluster(1, 2), partition((1, 2), (1, 2)), configs={**MIN_2, **OS})
    crashed = restarted(restarted(fenced(crashed, 2), 2), 1)
    assert loss_epochs(crashed) == [-1]
    crashed = unfenced(crashed, 2, 1)
    (last,) = crashed.topics["t"].partitions
    assert (last.leader, last.loss_epoch) == (1, last.leader_epoch)
    allowed = {"unclean.leader.election.enable": "true"}
    image = with_topic(cluster(1, 2), partition((1, 2), (1,)), configs=allowed)
    image = fenced(image, 1)
    (led,) = image.topics["t"].partitions
    assert (led.leader, led.loss_epoch) == (2, led.leader_epoch)
    later = unfenced(fenced(image, 2), 2)
    (led_again,) = later.topics["t"].partitions
    assert led_again.leader_epoch > led_again.loss_epoch == led.loss_epoch
    clean = fenced(with_topic(cluster(1, 2), partition((1, 2), (1, 2))), 1)
    assert loss_epochs(clean) == [-1]


def loss_epochs(image: ClusterImage) -> list[int]:
    return [known.loss_epoch for known in image.topics["t"].partitions]


def test_a_broker_that_restarts_within_its_session_hands_its_partitions_on() -> None:
    image = with_topic(cluster(1, 2, 3), partition((1, 2, 3), (1, 2, 3)))
    image = restarted(image, 1, is_clean=True)
    assert seen(image) == (2, (2, 3), ())


def test_a_replica_on_an_empty_disk_is_made_anew() -> None:
    image = with_topic(cluster(1, 2), partition((1, 2), (1, 2)), configs=MIN_2)
    image = restarted(fenced(image, 1), 1, directory_id=uuid.UUID(int=7))
    assert seen(image) == (2, (2,), ()), "1 has no committed record any more"
    assert not image.topics["t"].partitions[0].is_created(1)


def test_the_last_replica_waits_for_its_own_disk() -> None:
    """Another disk was mounted by mistake: nothing is forgotten, and nothing is empty."""
    image = fenced(with_topic(cluster(1), partition((1,), (1,))), 1)
    wrong = unfenced(restarted(image, 1, directory_id=uuid.UUID(int=7)), 1)
    assert seen(wrong) == (NO_LEADER, (1,), ())
    right = unfenced(restarted(fenced(wrong, 1), 1), 1)
    assert seen(right) == (1, (1,), ())
    decided = elect_leaders(wrong, {}, [("t", 0)], Election.UNCLEAN)
    lost = after(wrong, decided.records)
    assert seen(lost) == (1, (1,), ()), "the operator gave it up"
    assert not lost.topics["t"].partitions[0].is_created(1)


def test_leaders_move_away_from_a_broker_that_wants_to_stop() -> None:
    image = with_topic(cluster(1, 2, 3), partition((1, 2, 3), (1, 2, 3)), partition((1, 2), (1,)))
    image = after(image, begin_shutdown(image, {}, 1))
    assert seen(image) == (2, (2, 3), ())
    assert seen(image, 1) == (NO_LEADER, (1,), ()), "no other replica is in sync"
    assert not image.brokers[1].is_fenced
    assert unfence_broker(image, {}, 1) == [], "it stays away until it registers anew"


def test_a_broker_that_stops_or_is_fenced_is_not_elected() -> None:
    known = partition((1, 2, 3), (1, 2, 3), leader=3)
    image = inactive(inactive(with_topic(cluster(1, 2, 3), known), 1), 2, stopping=True)
    assert seen(fenced(image, 3))[0] == NO_LEADER


def test_the_elr_ends_when_fewer_replicas_are_enough() -> None:
    rules = TopicChanges(TopicDefaults(1, 3, {}))
    known = partition((1, 2, 3), (1, 2), elr=(3,))
    image = with_topic(cluster(1, 2, 3), known, configs={"min.insync.replicas": "3"})
    records = rules.change_config(image, "t", {"min.insync.replicas": "2"})
    assert seen(after(image, records)) == (1, (1, 2), ())
    leaderless = with_topic(
        inactive(cluster(1, 2, 3), 1, 2, 3),
        replace(known, isr=(1,), leader=NO_LEADER, elr=(2, 3)),
        configs={"min.insync.replicas": "3"},
    )
    records = rules.change_config(leaderless, "t", {"min.insync.replicas": "1"})
    assert seen(after(leaderless, records)) == (NO_LEADER, (1,), (2, 3)), "nothing is committed"


def test_a_topic_that_begins_to_allow_unclean_leaders_gets_one() -> None:
    known = partition((1, 2), (1,), leader=NO_LEADER)
    image = with_topic(inactive(cluster(1, 2), 1), known)
    rules = TopicChanges(TopicDefaults(1, 3, {}))
    records = rules.change_config(image, "t", {"unclean.leader.election.enable": "true"})
    assert seen(after(image, records)) == (2, (2,), ())


def test_balancing_gives_partitions_back_to_their_preferred_leaders_step_by_step() -> None:
    image = with_topic(
        cluster(1, 2, 3),
        partition((1, 2), (1, 2), leader=2),
        partition((2, 1), (1, 2), leader=1),
        partition((3, 1), (1,), leader=1),
        partition((1, 3), (1, 3), leader=1),
    )
    records = balance_leaders(image, {}, moves_max=1)
    assert len(records) == 1
    image = after(image, records)
    image = after(image, balance_leaders(image, {}, moves_max=1))
    assert [p.leader for p in image.topics["t"].partitions] == [1, 2, 1, 1]
    assert balance_leaders(image, {}) == [], "broker 3 is not in sync in partition 2"


@pytest.mark.parametrize(
    ("number", "election", "code"),
    [
        (0, Election.PREFERRED, ErrorCode.ELECTION_NOT_NEEDED),
        (1, Election.PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (0, Election.UNCLEAN, ErrorCode.ELECTION_NOT_NEEDED),
        (2, Election.UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
        (9, Election.UNCLEAN, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_an_election_that_cannot_be_is_refused(
    number: int, election: Election, code: ErrorCode
) -> None:
    image = with_topic(
        inactive(cluster(1, 2, 3), 3),
        partition((1, 2), (1, 2)),
        partition((2, 1), (1,)),
        partition((3,), (3,), leader=NO_LEADER),
    )
    decided = elect_leaders(image, {}, [("t", number), ("nope", 0)], election)
    assert [error and error.code for error in decided.refused] == [
        code,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert decided.records == []


def test_elections_are_decided_for_each_partition() -> None:
    image = with_topic(
        cluster(1, 2), partition((1, 2), (1, 2), leader=2), partition((1, 2), (1, 2))
    )
    decided = elect_leaders(image, {}, [("t", 0), ("t", 1), ("t", 0)], Election.PREFERRED)
    assert [error and error.code for error in decided.refused] == [
        None,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.INVALID_REQUEST,
    ]
    assert seen(after(image, decided.records)) == (1, (1, 2), ())
