"""Properties of every assignment: one owner each, even shares, few moved partitions."""

from __future__ import annotations

import copy
import dataclasses
import os
import random
import subprocess
import sys

from hypothesis import event, given
from hypothesis import strategies as st

from millrace.assignors import (
    BUILT_IN,
    Assignor,
    CooperativeStickyAssignor,
    Placement,
    StickyAssignor,
    Subscription,
)
from tests.clients.assignors.groups import (
    UNHURRIED,
    Group,
    after,
    claiming_groups,
    groups,
    helpful_moves,
    owners,
    sizes,
    telling,
)

ASSIGNORS = st.sampled_from(list(BUILT_IN.values()))
STICKY = StickyAssignor()
COOPERATIVE = CooperativeStickyAssignor()


def sticky(group: Group) -> Placement:
    return STICKY.assign(group.counts, telling(STICKY, group.members))


@UNHURRIED
@given(ASSIGNORS, claiming_groups())
def test_every_partition_has_one_owner_that_subscribes_to_its_topic(
    assignor: Assignor, group: Group
) -> None:
    members = telling(assignor, group.members)
    placement = assignor.assign(group.counts, members)
    assert placement.keys() == group.members.keys()
    owner = owners(placement)
    assert all(partition.topic in group.members[m].topics for partition, m in owner.items())
    assert all(given == sorted(given) for given in placement.values())
    placeable = set(group.placeable)
    assert owner.keys() <= placeable
    withheld = placeable - owner.keys()
    if assignor.name != COOPERATIVE.name:
        assert withheld == set()
    # What is withheld has an owner that will give it up, so another round follows.
    for partition in withheld:
        assert any(partition in subscription.owned for subscription in group.members.values())


@UNHURRIED
@given(ASSIGNORS, claiming_groups(), st.randoms(use_true_random=False))
def test_the_order_in_which_members_and_topics_come_does_not_matter(
    assignor: Assignor, group: Group, shuffler: random.Random
) -> None:
    members = telling(assignor, group.members)
    before = copy.deepcopy((group.counts, members))
    placement = assignor.assign(group.counts, members)
    counts_again, members_again = list(group.counts.items()), list(members.items())
    shuffler.shuffle(counts_again)
    shuffler.shuffle(members_again)
    assert assignor.assign(dict(counts_again), dict(members_again)) == placement
    assert (group.counts, members) == before


def test_hash_seeds_do_not_matter() -> None:
    code = """
from millrace.assignors import BUILT_IN, Subscription
from millrace.records import TopicPartition
topics = [f"t{i}" for i in range(8)]
held = [tuple(TopicPartition(topics[m % 8], p) for p in range(m, 20)) for m in range(12)]
wanted = [(topics[m % 8], topics[m * 3 % 8], topics[m * 5 % 8]) for m in range(12)]
members = {f"m{m}": Subscription(wanted[m], held[m], m % 3) for m in range(12)}
for assignor in BUILT_IN.values():
    print(assignor.assign(dict.fromkeys(topics, 20), members))
"""
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1
    assert len(printed.pop().splitlines()) == len(BUILT_IN)


@UNHURRIED
@given(claiming_groups())
def test_sticky_leaves_no_move_that_would_help(group: Group) -> None:
    placement = sticky(group)
    assert helpful_moves(group, placement) == []
    if len({frozenset(subscription.topics) for subscription in group.members.values()}) == 1:
        shares = sizes(placement).values()
        assert max(shares) - min(shares) <= 1


@UNHURRIED
@given(groups())
def test_sticky_moves_nothing_when_nothing_changed(group: Group) -> None:
    placement = sticky(group)
    assert sticky(after(group, placement, generation=1)) == placement


@UNHURRIED
@given(groups(alike=True), st.data())
def test_when_members_leave_the_others_keep_all_they_had(group: Group, data: st.DataObject) -> None:
    placement = sticky(group)
    settled = after(group, placement, generation=1)
    staying = data.draw(st.lists(st.sampled_from(sorted(group.members)), unique=True, min_size=1))
    smaller = Group(group.counts, {member: settled.members[member] for member in staying})
    now = sticky(smaller)
    for member in staying:
        assert set(placement[member]) <= set(now[member])
    for assignor in (STICKY, COOPERATIVE):
        members = telling(assignor, smaller.members)
        assert assignor.assign(group.counts, members) == now


@UNHURRIED
@given(groups(alike=True), st.integers(1, 4))
def test_when_members_come_partitions_move_to_them_alone(group: Group, count: int) -> None:
    placement = sticky(group)
    settled = after(group, placement, generation=1)
    topics = next(iter(group.members.values())).topics
    newcomers = {f"new{number}": Subscription(topics) for number in range(count)}
    now = sticky(Group(group.counts, {**settled.members, **newcomers}))
    for member, given_before in placement.items():
        assert set(now[member]) <= set(given_before)


@UNHURRIED
@given(groups(alike=True), st.data())
def test_no_even_placement_moves_fewer_partitions(group: Group, data: st.DataObject) -> None:
    """What a member may keep is its share; as many as owned enough keep one of the odd ones."""
    ids = sorted(group.members)
    owned: Placement = {member: [] for member in ids}
    for partition in group.placeable:
        owned[data.draw(st.sampled_from(ids))].append(partition)
    placement = sticky(after(group, owned, generation=1))
    low, odd = divmod(len(group.placeable), len(ids))
    most = sum(min(len(mine), low) for mine in owned.values())
    most += min(odd, sum(len(mine) > low for mine in owned.values()))
    kept = sum(len(set(placement[member]) & set(owned[member])) for member in ids)
    assert kept == most


@UNHURRIED
@given(claiming_groups())
def test_cooperative_assigns_no_partition_that_another_member_still_owns(group: Group) -> None:
    """An owner is the only member to claim a partition in its newest claimed generation."""
    placement = COOPERATIVE.assign(group.counts, group.members)
    for partition, receiver in owners(placement).items():
        newest = max(
            (
                subscription.generation
                for subscription in group.members.values()
                if partition in subscription.owned
            ),
            default=None,
        )
        owning = [
            member
            for member, subscription in group.members.items()
            if partition in subscription.owned and subscription.generation == newest
        ]
        assert owning in ([], [receiver])


@UNHURRIED
@given(claiming_groups())
def test_cooperative_revokes_only_partitions_that_sticky_would_move(group: Group) -> None:
    """What is left of the placement of `sticky` once the moving partitions are out of it."""
    target = sticky(group)
    placement = COOPERATIVE.assign(group.counts, group.members)
    for member, subscription in group.members.items():
        assert set(placement[member]) <= set(target[member])
        contested = {
            partition
            for partition in subscription.owned
            for other, others in group.members.items()
            if other != member
            and partition in others.owned
            and others.generation >= subscription.generation
        }
        staying = (set(target[member]) & set(subscription.owned)) - contested
        assert staying <= set(placement[member])


def rounds(group: Group, *, at_most: int) -> tuple[Group, int]:
    """Rebalances until no member gives anything up; returns also the number of rounds."""
    for count in range(1, at_most + 1):
        placement = COOPERATIVE.assign(group.counts, telling(COOPERATIVE, group.members))
        revoked = any(
            not set(subscription.owned) <= set(placement[member])
            for member, subscription in group.members.items()
        )
        group = after(group, placement, generation=10 + count)
        if not revoked:
            return group, count
    raise AssertionError(f"still revoking after {at_most} rounds")


def held(group: Group) -> Placement:
    return {member: list(subscription.owned) for member, subscription in group.members.items()}


@UNHURRIED
@given(groups(alike=True), claiming_groups())
def test_cooperative_members_with_equal_topics_settle_in_two_rounds(
    group: Group, claiming: Group
) -> None:
    ids = sorted(group.members)
    claims = list(claiming.members.values())
    group = Group(
        group.counts,
        {
            member: dataclasses.replace(
                group.members[member], owned=subscription.owned, generation=subscription.generation
            )
            for member, subscription in zip(ids, claims, strict=False)
        }
        or group.members,
    )
    settled, count = rounds(group, at_most=2)
    event(f"{count} rounds")
    assert owners(held(settled)).keys() == set(group.placeable)
    assert sorted(sizes(held(settled)).values()) == sorted(sizes(sticky(group)).values())
    assert COOPERATIVE.assign(group.counts, settled.members) == held(settled)


@UNHURRIED
@given(claiming_groups())
def test_cooperative_members_settle_whatever_they_subscribe_to(group: Group) -> None:
    settled, count = rounds(group, at_most=4)
    event(f"{count} rounds")
    assert owners(held(settled)).keys() == set(group.placeable)
    assert helpful_moves(settled, held(settled)) == []
    assert COOPERATIVE.assign(group.counts, settled.members) == held(settled)
