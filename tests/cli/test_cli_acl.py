"""`millrace acl`, and commands without the right to what they ask for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from millrace_cli.exits import Exit
from tests.cli.json_shapes import check_shape, documented
from tests.cli.poor_user import as_ada
from tests.cli.poor_user import operator as operator

if TYPE_CHECKING:
    from tests.cli.conftest import Millrace


def test_a_user_may_do_what_it_is_allowed_and_nothing_else(operator: Millrace) -> None:
    code, _, error = as_ada(operator, "produce", "orders", stdin=b"one\n")
    assert code == Exit.REFUSED
    assert "User:ada has no right DESCRIBE on topic 'orders'" in error
    added = operator("acl", "add", "ada", "--allow", "write,read", "--topic", "orders")
    assert (added.exit_code, added.output) == (0, "")
    assert as_ada(operator, "produce", "orders", stdin=b"one\n")[0] == 0
    assert as_ada(operator, "consume", "orders")[:2] == (0, "one\n")
    code, _, error = as_ada(operator, "consume", "orders", "-g", "reports", "--count", "1")
    assert code == Exit.REFUSED
    assert "on group 'reports'" in error
    assert operator("acl", "add", "ada", "--allow", "read", "--group", "reports").exit_code == 0
    assert as_ada(operator, "consume", "orders", "-g", "reports", "--count", "1")[1] == "one\n"
    assert as_ada(operator, "topic", "list")[1].split("\t")[0] == "orders"
    code, _, error = as_ada(operator, "topic", "delete", "orders", "--yes")
    assert (code, "no right DELETE on topic 'orders'" in error) == (Exit.REFUSED, True)
    code, _, error = as_ada(operator, "acl", "list")
    assert (code, "no right DESCRIBE on the cluster" in error) == (Exit.REFUSED, True)


def test_entries_are_listed_and_removed_as_they_were_added(operator: Millrace) -> None:
    flags = ["ada", "--allow", "read", "--deny", "write", "--topic", "orders", "--prefixed"]
    added = operator("acl", "add", *flags, "--host", "127.0.0.1", "--json")
    check_shape(documented()["acl", "add"], json.loads(added.stdout))
    cluster = operator("acl", "add", "User:*", "--allow", "describe", "--cluster")
    assert cluster.exit_code == 0
    rows = [line.split("\t") for line in operator("acl", "list").stdout.splitlines()]
    prefixed = ["orders", "prefixed", "127.0.0.1"]
    assert rows == [
        ["User:ada", "read", "topic", *prefixed, "allow"],
        ["User:ada", "write", "topic", *prefixed, "deny"],
        ["User:*", "describe", "cluster", "kafka-cluster", "literal", "*", "allow"],
    ]
    matching = operator("acl", "list", "--topic", "orders-eu", "--principal", "ada", "--json")
    check_shape(documented()["acl", "list"], json.loads(matching.stdout))
    assert len(json.loads(matching.stdout)) == 2
    assert operator("acl", "list", "--topic", "other").stdout == ""
    assert len(operator("acl", "list", "--cluster").stdout.splitlines()) == 1
    missing = operator("acl", "remove", *flags, "--yes")
    assert (missing.exit_code, "there is no such entry" in missing.stderr) == (Exit.REFUSED, True)
    removed = operator("acl", "remove", *flags, "--host", "127.0.0.1", "--yes", "--json")
    check_shape(documented()["acl", "remove"], json.loads(removed.stdout))
    assert len(json.loads(removed.stdout)) == 2
    assert operator("acl", "remove", "*", "--yes").exit_code == 0
    assert operator("acl", "list").stdout == ""


def test_a_removal_asks_before(operator: Millrace) -> None:
    assert operator("acl", "add", "ada", "--allow", "all", "--group", "g").exit_code == 0
    asked = operator.process("acl", "remove", "ada", stdin=b"n\n")
    assert asked.returncode != 0
    assert b"Remove allow User:ada all on group g?" in asked.stderr
    assert operator("acl", "list").stdout
    assert operator.process("acl", "remove", "ada", stdin=b"y\n").returncode == 0
    assert operator("acl", "list").stdout == ""


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--allow", "read"], "--topic, --group or --cluster"),
        (["--topic", "t"], "--allow or --deny"),
        (["--allow", "fly", "--topic", "t"], "'fly' is none of all, read"),
    ],
)
def test_flags_that_say_too_little_are_refused(
    millrace: Millrace, flags: list[str], said: str
) -> None:
    refused = millrace("acl", "add", "ada", *flags)
    assert refused.exit_code == Exit.USAGE
    assert said in refused.stderr.replace("\n", " ")


def test_an_entry_that_the_broker_refuses_is_an_error(operator: Millrace) -> None:
    refused = operator("acl", "add", "ada", "--allow", "create", "--group", "g")
    assert refused.exit_code == Exit.REFUSED
    assert "There is no CREATE of a GROUP" in refused.stderr


def test_a_broker_without_authorization_says_so(millrace: Millrace) -> None:
    refused = millrace("acl", "list")
    assert refused.exit_code == Exit.REFUSED
    assert "`authorization` switches it on" in refused.stderr
