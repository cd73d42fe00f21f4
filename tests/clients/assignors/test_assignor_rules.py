"""The published rules of Kafka's assignors, case by case, and how a user chooses among them."""

from __future__ import annotations

import doctest
import importlib
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.assignors import (
    BUILT_IN,
    Assignor,
    CooperativeStickyAssignor,
    Placement,
    RangeAssignor,
    RebalanceProtocol,
    RoundRobinAssignor,
    StickyAssignor,
    Subscription,
    chosen,
    decode_assigned,
    encode_assigned,
    rebalance_protocol,
)
from millrace.errors import ConfigError
from millrace.records import TopicPartition
from millrace_protocol.consumer_protocol import (
    ConsumerSubscription,
    GenerationUserData,
    encode_generation_user_data,
    encode_subscription,
)
from millrace_protocol.errors import WireError
from tests.clients.assignors.groups import UNHURRIED, telling


def partitions(text: str) -> tuple[TopicPartition, ...]:
    """`"t0-1 t0-2"` as partitions."""
    pairs = (word.rsplit("-", 1) for word in text.split())
    return tuple(TopicPartition(topic, int(number)) for topic, number in pairs)


def member(
    topics: str, owned: str = "", generation: int = -1, *, instance: str | None = None
) -> Subscription:
    return Subscription(
        tuple(topics.split()), partitions(owned), generation, group_instance_id=instance
    )


def shown(placement: Placement) -> dict[str, str]:
    return {name: " ".join(map(str, given)) for name, given in placement.items()}


def placed(
    assignor: Assignor, counts: Mapping[str, int], members: Mapping[str, Subscription]
) -> dict[str, str]:
    return shown(assignor.assign(counts, telling(assignor, members)))


RANGE, ROUND_ROBIN = RangeAssignor(), RoundRobinAssignor()
STICKY, COOPERATIVE = StickyAssignor(), CooperativeStickyAssignor()
EACH = pytest.mark.parametrize("assignor", BUILT_IN.values(), ids=list(BUILT_IN))
EITHER_STICKY = pytest.mark.parametrize(
    "assignor", [STICKY, COOPERATIVE], ids=["sticky", "cooperative-sticky"]
)
DIFFERENT = {"c0": member("t0"), "c1": member("t0 t1"), "c2": member("t0 t1 t2")}
"""Of the example in Kafka's documentation of the round robin and the sticky assignor."""


@EACH
def test_idle_members_get_an_empty_list(assignor: Assignor) -> None:
    members = {"c0": member("t"), "c1": member("t"), "c2": member("t"), "c3": member("")}
    assert placed(assignor, {"t": 2}, members) == {"c0": "t-0", "c1": "t-1", "c2": "", "c3": ""}


@EACH
def test_topics_that_do_not_exist_or_have_no_subscriber_are_left_out(assignor: Assignor) -> None:
    members = {"c0": member("gone t"), "c1": member("gone empty")}
    assert placed(assignor, {"t": 1, "other": 3, "empty": 0}, members) == {"c0": "t-0", "c1": ""}
    assert placed(assignor, {}, members) == {"c0": "", "c1": ""}
    assert placed(assignor, {"t": 1}, {}) == {}


@EACH
def test_a_topic_named_twice_counts_once(assignor: Assignor) -> None:
    members = {"c0": member("t t"), "c1": member("t")}
    assert placed(assignor, {"t": 2}, members) == {"c0": "t-0", "c1": "t-1"}


def test_range_gives_the_first_members_one_more_of_each_topic() -> None:
    members = {name: member("t0 t1") for name in ("c2", "c0", "c1")}
    assert placed(RANGE, {"t0": 7, "t1": 2}, members) == {
        "c0": "t0-0 t0-1 t0-2 t1-0",
        "c1": "t0-3 t0-4 t1-1",
        "c2": "t0-5 t0-6",
    }


def test_range_counts_only_members_of_the_topic() -> None:
    assert placed(RANGE, {"t0": 3, "t1": 2, "t2": 3}, DIFFERENT) == {
        "c0": "t0-0",
        "c1": "t0-1 t1-0",
        "c2": "t0-2 t1-1 t2-0 t2-1 t2-2",
    }


@pytest.mark.parametrize(
    ("assignor", "first", "second"),
    [
        (RANGE, "t0-0 t0-1 t1-0 t1-1", "t0-2 t1-2"),
        (ROUND_ROBIN, "t0-0 t0-2 t1-1", "t0-1 t1-0 t1-2"),
    ],
)
def test_static_members_keep_their_place_under_new_member_ids(
    assignor: Assignor, first: str, second: str
) -> None:
    counts = {"t0": 3, "t1": 3}
    before = {
        "c0": member("t0 t1", instance="i1"),
        "c1": member("t0 t1", instance="i2"),
    }
    assert placed(assignor, counts, before) == {"c0": first, "c1": second}
    restarted = {
        "c3": member("t0 t1", instance="i1"),
        "c2": member("t0 t1", instance="i2"),
    }
    assert placed(assignor, counts, restarted) == {"c3": first, "c2": second}


@pytest.mark.parametrize("assignor", [RANGE, ROUND_ROBIN])
def test_static_members_come_before_the_others(assignor: Assignor) -> None:
    members = {"c0": member("t"), "c9": member("t", instance="z"), "c1": member("t")}
    assert placed(assignor, {"t": 2}, members) == {"c0": "t-1", "c9": "t-0", "c1": ""}


def test_roundrobin_skips_members_that_do_not_subscribe() -> None:
    members = {"c0": member("t0"), "c1": member("t0 t1"), "c2": member("t0 t1 t2")}
    assert placed(ROUND_ROBIN, {"t0": 1, "t1": 2, "t2": 3}, members) == {
        "c0": "t0-0",
        "c1": "t1-0",
        "c2": "t1-1 t2-0 t2-1 t2-2",
    }


def test_sticky_starts_as_roundrobin_does() -> None:
    counts = dict.fromkeys(("t0", "t1", "t2", "t3"), 2)
    members = {name: member("t0 t1 t2 t3") for name in ("c0", "c1", "c2")}
    assert placed(STICKY, counts, members) == {
        "c0": "t0-0 t1-1 t3-0",
        "c1": "t0-1 t2-0 t3-1",
        "c2": "t1-0 t2-1",
    }
    assert placed(STICKY, counts, members) == placed(ROUND_ROBIN, counts, members)


def test_sticky_gives_freed_partitions_to_members_below_their_share() -> None:
    counts = dict.fromkeys(("t0", "t1", "t2", "t3"), 2)
    members = {
        "c0": member("t0 t1 t2 t3", "t0-0 t1-1 t3-0", 1),
        "c2": member("t0 t1 t2 t3", "t1-0 t2-1", 1),
    }
    assert placed(STICKY, counts, members) == {
        "c0": "t0-0 t0-1 t1-1 t3-0",
        "c2": "t1-0 t2-0 t2-1 t3-1",
    }


def test_sticky_evens_out_different_subscriptions_and_keeps_them() -> None:
    counts = {"t0": 1, "t1": 2, "t2": 3}
    assert placed(STICKY, counts, DIFFERENT) == {
        "c0": "t0-0",
        "c1": "t1-0 t1-1",
        "c2": "t2-0 t2-1 t2-2",
    }
    left = {
        "c1": member("t0 t1", "t1-0 t1-1", 1),
        "c2": member("t0 t1 t2", "t2-0 t2-1 t2-2", 1),
    }
    assert placed(STICKY, counts, left) == {
        "c1": "t0-0 t1-0 t1-1",
        "c2": "t2-0 t2-1 t2-2",
    }


@EITHER_STICKY
def test_the_newest_generation_that_names_a_partition_owns_it(assignor: Assignor) -> None:
    members = {
        "c1": member("t1 t2 t3", "t1-0 t2-0 t3-0", 10),
        "c2": member("t1 t2 t3", "t1-1 t2-1 t3-1", 9),
        "c3": member("t1 t2 t3", "t1-1 t3-0 t3-2", 8),
    }
    assert placed(assignor, {"t1": 3, "t2": 3, "t3": 3}, members) == {
        "c1": "t1-0 t2-0 t3-0",
        "c2": "t1-1 t2-1 t3-1",
        "c3": "t1-2 t2-2 t3-2",
    }


def test_a_partition_claimed_twice_in_one_generation_is_withheld_from_both() -> None:
    members = {
        "c0": member("t", "t-0 t-1", 5),
        "c1": member("t", "t-1 t-2", 5),
        "c2": member("t other", "", 5),
    }
    assert placed(COOPERATIVE, {"t": 3}, members) == {"c0": "t-0", "c1": "t-2", "c2": ""}
    given_up = {**members, "c0": member("t", "t-0", 6), "c1": member("t", "t-2", 6)}
    assert placed(COOPERATIVE, {"t": 3}, given_up) == {"c0": "t-0", "c1": "t-2", "c2": "t-1"}


@pytest.mark.parametrize("order", [("old", "one", "two"), ("two", "old", "one")])
def test_an_older_claim_does_not_win_a_quarrel_of_newer_ones(order: Sequence[str]) -> None:
    claims = {
        "old": member("t", "t-0", 1),
        "one": member("t", "t-0 t-1", 2),
        "two": member("t", "t-0 t-2", 2),
    }
    members = {name: claims[name] for name in order}
    assert placed(COOPERATIVE, {"t": 3}, members) == {
        name: {"old": "", "one": "t-1", "two": "t-2"}[name] for name in order
    }


def test_a_partition_is_not_given_to_a_member_that_lost_it_while_its_owner_reads_it() -> None:
    """`late` was away for a generation; it still names what `owner` was given since."""
    members = {
        "late": member("t", "t-0 t-1", 1),
        "owner": member("t u", "t-0 t-1 u-0 u-1", 2),
    }
    assert placed(STICKY, {"t": 2, "u": 2}, members) == {
        "late": "t-0 t-1",
        "owner": "u-0 u-1",
    }
    assert placed(COOPERATIVE, {"t": 2, "u": 2}, members) == {"late": "", "owner": "u-0 u-1"}


@EITHER_STICKY
def test_partitions_of_topics_that_vanished_or_shrank_are_forgotten(assignor: Assignor) -> None:
    members = {
        "c0": member("t gone", "gone-0 gone-1 t-0 t-1 t-7 t--1", 1),
        "c1": member("t gone", "gone-2 t-2", 1),
    }
    assert placed(assignor, {"t": 4}, members) == {"c0": "t-0 t-1", "c1": "t-2 t-3"}


@EITHER_STICKY
def test_new_partitions_move_none_of_the_old_ones(assignor: Assignor) -> None:
    members = {"c0": member("t", "t-0 t-2", 1), "c1": member("t", "t-1", 1)}
    assert placed(assignor, {"t": 6}, members) == {"c0": "t-0 t-2 t-3", "c1": "t-1 t-4 t-5"}


def test_cooperative_takes_only_partitions_above_the_share() -> None:
    members = {
        "c0": member("t", "t-0 t-1 t-2 t-3", 1),
        "c1": member("t", "t-4 t-5 t-6", 1),
        "c2": member("t"),
    }
    first = {"c0": "t-0 t-1 t-2", "c1": "t-4 t-5", "c2": ""}
    assert placed(COOPERATIVE, {"t": 7}, members) == first
    members = {name: member("t", given, 2) for name, given in first.items()}
    assert placed(COOPERATIVE, {"t": 7}, members) == {**first, "c2": "t-3 t-6"}


def test_cooperative_withholds_partitions_that_their_owner_no_longer_subscribes_to() -> None:
    members = {"c0": member("u", "t-0", 1), "c1": member("t", "t-1", 1)}
    assert placed(COOPERATIVE, {"t": 2, "u": 1}, members) == {"c0": "u-0", "c1": "t-1"}


def test_cooperative_assigns_unowned_partitions_at_once() -> None:
    """The owner is gone from the group: no member has to give anything up."""
    members = {"c0": member("t", "t-0", 1), "c1": member("t", "t-1", 1)}
    assert placed(COOPERATIVE, {"t": 4}, members) == {"c0": "t-0 t-2", "c1": "t-1 t-3"}


def test_cooperative_takes_the_generation_from_user_data_before_version_2() -> None:
    def old_member(owned: str, generation: int) -> Subscription:
        subscription = Subscription.decode(
            encode_subscription(
                ConsumerSubscription(
                    topics=("t",),
                    user_data=encode_generation_user_data(GenerationUserData(generation)),
                    owned=(),
                ),
                1,
            )
        )
        return Subscription(
            subscription.topics, partitions(owned), subscription.generation, subscription.user_data
        )

    members = {"c0": old_member("t-0 t-1", 4), "c1": old_member("t-1", 5)}
    assert shown(COOPERATIVE.assign({"t": 2}, members)) == {"c0": "t-0", "c1": "t-1"}


@EITHER_STICKY
@pytest.mark.parametrize("user_data", [None, b"", b"\x00\x01nonsense", b"\xff" * 4])
def test_user_data_that_cannot_be_read_is_no_reason_to_fail(
    assignor: Assignor, user_data: bytes | None
) -> None:
    members = {name: Subscription(("t",), user_data=user_data) for name in ("c0", "c1")}
    assert shown(assignor.assign({"t": 2}, members)) == {"c0": "t-0", "c1": "t-1"}


def test_a_member_that_was_given_nothing_yet_has_no_sticky_user_data() -> None:
    assert STICKY.user_data(("t",), assigned=(), generation=-1) is None
    assert STICKY.user_data(("t",), assigned=(), generation=0) == b"\0\0\0\0\0\0\0\0"


@pytest.mark.parametrize("name", BUILT_IN)
def test_an_assignor_is_chosen_by_its_name(name: str) -> None:
    (assignor,) = chosen([name])
    assert assignor.name == name


class FirstTakesAll:
    """A user's own assignor."""

    name = "first-takes-all"
    protocols = (RebalanceProtocol.COOPERATIVE,)

    def user_data(
        self, topics: Sequence[str], *, assigned: Sequence[TopicPartition], generation: int
    ) -> bytes | None:
        return None

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> Placement:
        return {name: [] for name in members}


def test_a_users_own_assignor_is_chosen_as_an_object() -> None:
    own = FirstTakesAll()
    assert chosen([own, "cooperative-sticky"]) == (own, BUILT_IN["cooperative-sticky"])


@pytest.mark.parametrize(
    ("names", "protocol"),
    [
        (["cooperative-sticky"], RebalanceProtocol.COOPERATIVE),
        (["range", "cooperative-sticky"], RebalanceProtocol.EAGER),
        (["sticky", "roundrobin"], RebalanceProtocol.EAGER),
    ],
)
def test_a_member_is_cooperative_when_all_its_assignors_are(
    names: list[str], protocol: RebalanceProtocol
) -> None:
    assert rebalance_protocol(chosen(names)) is protocol


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ([], "assignors is a list with at least one of them"),
        ("range", "assignors is a list with at least one of them"),
        (
            ["ranges"],
            "assignors has 'ranges'; the names are range, roundrobin, sticky, cooperative",
        ),
        (["range", "range"], "assignors has 'range' twice"),
        (["range", FirstTakesAll()], "range, first-takes-all, and no way of rebalancing is right"),
    ],
)
def test_assignors_that_cannot_work_are_refused(choice: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        chosen(choice)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
GIVEN = st.lists(st.builds(TopicPartition, TEXT, st.integers(0, 2**31 - 1)), max_size=6)


@UNHURRIED
@given(st.lists(TEXT, max_size=4), GIVEN, st.integers(-1, 2**31 - 1), st.none() | TEXT)
def test_a_subscription_reaches_the_leader_whole(
    topics: list[str], owned: list[TopicPartition], generation: int, instance: str | None
) -> None:
    subscription = Subscription(tuple(topics), tuple(owned), generation, b"data", "rack", instance)
    assert Subscription.decode(subscription.encode(), group_instance_id=instance) == Subscription(
        tuple(sorted(topics)), tuple(sorted(owned)), generation, b"data", "rack", instance
    )


@UNHURRIED
@given(GIVEN)
def test_an_assignment_reaches_the_member_whole(assigned: list[TopicPartition]) -> None:
    assert decode_assigned(encode_assigned(assigned)) == tuple(sorted(assigned))


def test_no_assignment_is_nothing_and_a_broken_one_is_refused() -> None:
    assert decode_assigned(b"") == ()
    with pytest.raises(WireError):
        decode_assigned(b"\0")


@pytest.mark.parametrize("name", ["range", "round_robin", "sticky", "cooperative_sticky"])
def test_the_examples_in_the_assignors_are_true(name: str) -> None:
    module = importlib.import_module(f"millrace.assignors.{name}")
    failed, attempted = doctest.testmod(module)
    assert (failed, attempted > 0) == (0, True)
