"""Checks of W-4.45 to W-4.47: quotas of clients."""

from __future__ import annotations

from collections.abc import Sequence

from tests.wire.check import Target, check, codes, equal
from tests.wire.client import Connection

UNSUPPORTED_VERSION, INVALID_REQUEST, THROTTLING_QUOTA_EXCEEDED = 35, 42, 89
Part = tuple[str, str | None]
Change = tuple[str, float, bool]
RATE: Change = ("producer_byte_rate", 1e6, False)
WIRE_CLIENT = ("client-id", "wire")
"""The client id of every connection of these checks."""


def _alter(
    wire: Connection,
    entity: Sequence[Part],
    *changes: Change,
    validate_only: bool = False,
) -> int:
    answer = wire.call("AlterClientQuotas", [([*entity], [*changes])], validate_only)
    return int(answer.results[0].error_code)


def _described(
    wire: Connection, *filters: tuple[str, int, str | None], strict: bool = False
) -> object:
    found = wire.call("DescribeClientQuotas", [*filters], strict).entities
    return {
        tuple((part.entity_type, part.entity_name) for part in each.entity): {
            value.key: value.value for value in each["values"]
        }
        for each in found
    }


@check("W-4.45", "W-4.46")
def quotas_are_set_described_and_removed(target: Target) -> None:
    """By exact name, by the null name, by type, with and without other parts."""
    user, client_id = target.name("user"), target.name("client")
    both: tuple[Part, ...] = (("client-id", client_id), ("user", user))
    each: tuple[Part, ...] = (("client-id", None), ("user", user))
    with target.connect() as wire:
        equal(_alter(wire, both, RATE, validate_only=True), 0, "only validated")
        equal(_described(wire, ("user", 0, user)), {}, "nothing changed")
        equal(_alter(wire, both[::-1], RATE, ("request_percentage", 12.5, False)), 0, "both")
        equal(_alter(wire, each, RATE), 0, "each client id")
        of_both = {"producer_byte_rate": 1e6, "request_percentage": 12.5}
        of_each = {"producer_byte_rate": 1e6}
        equal(_described(wire, ("user", 0, user)), {both: of_both, each: of_each}, "of the user")
        exact = ("user", 0, user), ("client-id", 0, client_id)
        equal(_described(wire, *exact, strict=True), {both: of_both}, "of both")
        null = ("user", 0, user), ("client-id", 1, None)
        equal(_described(wire, *null), {each: of_each}, "of each client id")
        kind = ("user", 0, user), ("client-id", 2, None)
        equal(_described(wire, *kind), {both: of_both, each: of_each}, "of any client id")
        equal(_described(wire, ("user", 0, user), strict=True), {}, "of the user alone")
        gone = ("producer_byte_rate", 0.0, True)
        equal(_alter(wire, both, gone, ("request_percentage", 0.0, True)), 0, "removal")
        equal(_alter(wire, each, gone), 0, "removal")
        equal(_alter(wire, each, gone), 0, "removal of what is not there")
        equal(_described(wire, ("user", 0, user)), {}, "afterwards")


@check("W-4.45.1")
def a_filter_that_says_nothing_is_refused(target: Target) -> None:
    """INVALID_REQUEST, or UNSUPPORTED_VERSION for a type that there is not."""
    wrong: list[tuple[list[tuple[str, int, str | None]], int]] = [
        ([("", 0, "a")], INVALID_REQUEST),
        ([("user", 0, "a"), ("user", 0, "b")], INVALID_REQUEST),
        ([("ip", 2, None), ("user", 2, None)], INVALID_REQUEST),
        ([("user", 3, None)], INVALID_REQUEST),
        ([("user", 0, None)], INVALID_REQUEST),
        ([("user", 1, "a")], INVALID_REQUEST),
        ([("planet", 0, "a")], UNSUPPORTED_VERSION),
    ]
    with target.connect() as wire:
        for filters, code in wrong:
            equal(wire.refusal("DescribeClientQuotas", filters, False).code, code, f"{filters}")


@check("W-4.46.1")
def what_no_quota_can_be_is_refused_for_its_entity(target: Target) -> None:
    """INVALID_REQUEST, and the other entity of the request is changed."""
    good, bad = target.name("user"), target.name("user")
    user: tuple[Part, ...] = (("user", bad),)
    wrong: list[tuple[tuple[Part, ...], tuple[Change, ...]]] = [
        ((), (RATE,)),
        ((("planet", bad),), (RATE,)),
        ((("user", bad), ("ip", "10.0.0.1")), (RATE,)),
        ((("user", bad), ("user", bad)), (RATE,)),
        ((("user", ""),), (RATE,)),
        ((("user", "x" * 1001),), (RATE,)),
        ((("ip", "somewhere"),), (("connection_creation_rate", 1.0, False),)),
        ((("ip", "10.0.0.1"),), (RATE,)),
        (user, (("connection_creation_rate", 1.0, False),)),
        (user, (("producer_byte_rate", 1e19, False),)),
        ((("ip", None),), (("connection_creation_rate", 2.0**31, False),)),
        (user, (("speed", 1.0, False),)),
        (user, (RATE, RATE)),
        (user, (("producer_byte_rate", 0.0, False),)),
        (user, (("producer_byte_rate", 0.5, False),)),
        (user, (("request_percentage", float("nan"), False),)),
        (user, (("request_percentage", float("inf"), False),)),
    ]
    with target.connect() as wire:
        for entity, changes in wrong:
            entities = [([("user", good)], [RATE]), ([*entity], [*changes])]
            answer = wire.call("AlterClientQuotas", entities, False)
            equal(codes(answer.results), [0, INVALID_REQUEST], f"{entity} {changes}")
        twice = [([("user", good)], [RATE]), ([("user", good)], [])]
        answer = wire.call("AlterClientQuotas", twice, False)
        equal(codes(answer.results), [0, INVALID_REQUEST], "an entity that is named again")
        equal(_described(wire, ("user", 0, bad)), {}, "a refused entity")
        equal(_alter(wire, [("user", good)], ("producer_byte_rate", 0.0, True)), 0, "removal")


@check("W-4.47.3")
def topics_beyond_the_rate_are_refused(target: Target) -> None:
    """THROTTLING_QUOTA_EXCEEDED, and there is no such topic."""
    slow = ("controller_mutation_rate", 0.001, False)
    first, second = target.name(), target.name()
    with target.connect() as wire:
        equal(_alter(wire, [WIRE_CLIENT], slow), 0, "quota")
        try:
            topics: list[object] = [(name, 1, -1, [], []) for name in (first, second)]
            answer = wire.call("CreateTopics", topics, False)
            equal(codes(answer.topics), [0, THROTTLING_QUOTA_EXCEEDED], "topics")
            refused = wire.call("DeleteTopics", [first]).topics
            equal(codes(refused), [THROTTLING_QUOTA_EXCEEDED], "deletion")
            found = [each.name for each in wire.call("Metadata", None).topics]
            equal((first in found, second in found), (True, False), "topics that there are")
        finally:
            equal(_alter(wire, [WIRE_CLIENT], (slow[0], 0.0, True)), 0, "removal")
