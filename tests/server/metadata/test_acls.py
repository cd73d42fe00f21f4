"""Access control: what entries allow, which there can be, and how the metadata log keeps them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_protocol.acls import (
    OPERATIONS_OF,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from millrace_protocol.metadata_records import AccessControlEntryRecord
from millrace_server.metadata import acls
from millrace_server.metadata.acls import (
    AclEntry,
    AclFilter,
    AclSet,
    create_acls,
    delete_acls,
    matching_acls,
)
from millrace_server.metadata.delta import preview
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.records import UnreadableMetadata
from millrace_server.metadata.snapshot import decode_snapshot, encode_snapshot

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
NAMES = ["a", "ab", "abc", "b", "*"]
PRINCIPALS = ["User:ada", "User:bob"]
HOSTS = ["10.0.0.1", "10.0.0.2"]
ENTRIES = st.builds(
    AclEntry,
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(NAMES),
    st.sampled_from([*PRINCIPALS, "User:*"]),
    st.sampled_from([*HOSTS, "*"]),
    st.sampled_from([Operation.ALL, *OPERATIONS_OF[TOPIC]]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
SETS = st.lists(ENTRIES, max_size=8)
REQUESTS = st.tuples(
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from([*OPERATIONS_OF[TOPIC]]),
    st.sampled_from([TOPIC, GROUP]),
)


def entry(
    name: str = "orders",
    *,
    kind: ResourceType = TOPIC,
    pattern: PatternType = PatternType.LITERAL,
    principal: str = "User:ada",
    host: str = "*",
    operation: Operation = Operation.READ,
    permission: Permission = Permission.ALLOW,
) -> AclEntry:
    return AclEntry(kind, pattern, name, principal, host, operation, permission)


def allowed_by_kafka(
    entries: Iterable[AclEntry],
    principal: str,
    host: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
) -> bool:
    """The rule as KIP-11 and KIP-290 state it, over a list."""
    about = [
        e
        for e in entries
        if e.resource_type is kind
        and (
            name.startswith(e.name)
            if e.pattern_type is PatternType.PREFIXED
            else e.name in (name, "*")
        )
        and e.principal in (principal, "User:*")
        and e.host in (host, "*")
    ]
    denied = {e.operation for e in about if e.permission is Permission.DENY}
    if denied & {operation, Operation.ALL}:
        return False
    enough = {operation, Operation.ALL}
    if operation is Operation.DESCRIBE:
        enough |= {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    if operation is Operation.DESCRIBE_CONFIGS:
        enough |= {Operation.ALTER_CONFIGS}
    return any(e.permission is Permission.ALLOW and e.operation in enough for e in about)


@given(SETS, REQUESTS, st.sampled_from(["a", "ab", "abcd", "c"]))
def test_a_set_allows_what_kafkas_rule_allows(
    entries: list[AclEntry],
    request: tuple[str, str, Operation, ResourceType],
    name: str,
) -> None:
    expected = allowed_by_kafka(entries, *request, name)
    assert AclSet(entries).allows(*request, name) == expected


@given(SETS, REQUESTS)
def test_any_resource_is_allowed_if_there_is_a_name_that_is(
    entries: list[AclEntry], request: tuple[str, str, Operation, ResourceType]
) -> None:
    """Names on which each subset of the patterns can match, as far as they can together."""
    names = [name + rest for name in ["", *NAMES[:-1], "*"] for rest in ("", "~")]
    named = any(allowed_by_kafka(entries, *request, name) for name in names if name)
    assert AclSet(entries).allows_any(*request) == named


def test_the_order_of_entries_does_not_matter_to_a_denial() -> None:
    allow = entry(pattern=PatternType.PREFIXED, name="ord", operation=Operation.ALL)
    deny = entry(permission=Permission.DENY, operation=Operation.WRITE)
    for entries in ([allow, deny], [deny, allow]):
        known = AclSet(entries)
        assert known.allows("User:ada", "10.0.0.1", Operation.READ, TOPIC, "orders")
        assert not known.allows("User:ada", "10.0.0.1", Operation.WRITE, TOPIC, "orders")
        assert known.allows("User:ada", "10.0.0.1", Operation.WRITE, TOPIC, "orders.new")


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (entry(kind=ResourceType.ANY), "one type of resource"),
        (entry(pattern=PatternType.MATCH), "literal or prefixed"),
        (entry(permission=Permission.ANY), "allows or denies"),
        (entry(kind=GROUP, operation=Operation.WRITE), "there are ALL, READ, DELETE, DESCRIBE"),
        (entry(operation=Operation.ANY), "There is no ANY of a TOPIC"),
        (entry(name=""), "has 1 to 1000 characters, not 0"),
        (entry(name="n" * 1_001), "has 1 to 1000 characters, not 1001"),
        (
            entry(kind=ResourceType.CLUSTER, name="mine", operation=Operation.ALTER),
            "The only CLUSTER is named kafka-cluster, not 'mine'",
        ),
        (entry(principal="ada"), "'ada' is no principal; write User:NAME"),
        (entry(principal="User:"), "is no principal"),
        (entry(principal="User:" + "n" * 1_000), "up to 1000 characters"),
        (entry(host="broker.example"), "is no host; give an IP address, or * for all"),
        (entry(host="10.0.0.01"), "is no host"),
    ],
)
def test_an_entry_that_cannot_be_is_refused(wrong: AclEntry, problem: str) -> None:
    decisions = create_acls(AclSet(), [wrong, entry()])
    refused, fine = decisions.refused
    assert refused is not None and problem in refused.message
    assert fine is None
    assert decisions.records == [AccessControlEntryRecord(*entry())]


def test_an_entry_is_added_once() -> None:
    assert create_acls(AclSet([entry()]), [entry()]).records == []
    assert len(create_acls(AclSet(), [entry(), entry()]).records) == 1


def test_a_cluster_has_a_bound_of_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acls, "ACLS_MAX", 2)
    wanted = [entry(name) for name in "abc"]
    decisions = create_acls(AclSet(), wanted)
    assert [each is None for each in decisions.refused] == [True, True, False]
    assert len(decisions.records) == 2


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        (AclFilter(), ["orders", "ord", "*", "workers"]),
        (AclFilter(resource_type=GROUP), ["workers"]),
        (AclFilter(TOPIC, PatternType.LITERAL, "orders"), ["orders"]),
        (AclFilter(TOPIC, PatternType.ANY, "ord"), ["ord"]),
        (AclFilter(TOPIC, PatternType.MATCH, "orders"), ["orders", "ord", "*"]),
        (AclFilter(TOPIC, PatternType.MATCH, "other"), ["*"]),
        (AclFilter(principal="User:bob"), ["*"]),
        (AclFilter(host="10.0.0.1"), ["workers"]),
        (AclFilter(operation=Operation.WRITE), ["ord"]),
        (AclFilter(permission=Permission.DENY), ["*"]),
    ],
)
def test_a_filter_chooses_entries(chosen: AclFilter, names: list[str]) -> None:
    known = AclSet(
        [
            entry("orders"),
            entry("ord", pattern=PatternType.PREFIXED, operation=Operation.WRITE),
            entry("*", principal="User:bob", permission=Permission.DENY),
            entry("workers", kind=GROUP, host="10.0.0.1"),
        ]
    )
    assert [each.name for each in matching_acls(known, chosen)] == names


@given(st.lists(ENTRIES, max_size=6, unique=True), st.data())
def test_the_image_has_the_entries_that_were_added_and_not_removed(
    entries: list[AclEntry], data: st.DataObject
) -> None:
    image = preview(ClusterImage(), create_acls(AclSet(), entries).records)
    added = [each for each in entries if each.operation in _operations(each)]
    assert list(image.acls.entries) == added
    removed = data.draw(st.sampled_from(NAMES))
    chosen = AclFilter(name=removed)
    after = preview(image, delete_acls(image.acls, [chosen, chosen]))
    assert list(after.acls.entries) == [each for each in added if each.name != removed]
    assert decode_snapshot(encode_snapshot(after, now_ms=0), end_offset=0) == after


def _operations(wanted: AclEntry) -> set[Operation]:
    return {*OPERATIONS_OF[wanted.resource_type], Operation.ALL}


def test_an_entry_of_a_newer_millrace_is_not_guessed_at() -> None:
    newer = AccessControlEntryRecord(99, 3, "t", "User:u", "*", 3, 3)
    with pytest.raises(UnreadableMetadata, match="99"):
        preview(ClusterImage(), [newer])
