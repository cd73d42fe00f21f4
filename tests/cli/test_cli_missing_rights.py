"""Commands of a user without the right to what they ask for: one sentence, and exit code 1."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from millrace_cli.exits import Exit
from tests.cli.poor_user import as_ada
from tests.cli.poor_user import operator as operator

if TYPE_CHECKING:
    from tests.cli.conftest import Millrace

ADA = "User:ada"
TOPIC = f"orders: {ADA} has no right DESCRIBE on topic 'orders'"
GROUP = f"reports: {ADA} has no right DESCRIBE on group 'reports'"
CLUSTER = f"{ADA} has no right DESCRIBE on the cluster"
ALTER = f"{ADA} has no right ALTER on the cluster"
WITHOUT_RIGHTS = {
    "produce orders": TOPIC,
    "consume orders": TOPIC,
    "consume orders -g reports": TOPIC,
    "consume '^o'": f"{ADA} has no right DESCRIBE on any topic",
    "sql 'select * from orders'": TOPIC,
    "topic list": f"{ADA} has no right DESCRIBE on any topic",
    "topic list orders": TOPIC,
    "topic describe orders": TOPIC,
    "topic create new": f"new: {ADA} has no right CREATE on topic 'new'",
    "topic alter orders -p 9": f"orders: {ADA} has no right ALTER on topic 'orders'",
    "topic trim orders --offset 1 --yes": TOPIC,
    "topic delete orders --yes": TOPIC,
    "topic elect-leaders": f"{ADA} has no right DESCRIBE on any topic",
    "topic elect-leaders orders": TOPIC,
    "topic reassign orders -r 0": TOPIC,
    "group list": f"{ADA} has no right DESCRIBE on any group",
    "group list reports": f"{ADA} has no right DESCRIBE on any group",
    "group lag": f"{ADA} has no right DESCRIBE on any group",
    "group describe reports": GROUP,
    "group delete reports --yes": GROUP,
    "cluster info": CLUSTER,
    "cluster status": CLUSTER,
    "cluster logs": CLUSTER,
    "cluster config": f"broker 0: {ADA} has no right DESCRIBE_CONFIGS on the cluster",
    "broker retire 0": f"broker 0: {ALTER}",
    "user list": CLUSTER,
    "acl list": CLUSTER,
    "bench consume orders": TOPIC,
    "bench produce orders -n 1": TOPIC,
}
WITH_FEW_RIGHTS = {
    "produce orders": f"{ADA} has no right IDEMPOTENT_WRITE on the cluster; WRITE on any topic is "
    "enough",
    "consume orders": f"orders-0: {ADA} has no right READ on topic 'orders'",
    "consume orders -g reports": f"{ADA} has no right READ on group 'reports'",
    "consume orders -g billing": f"billing: {ADA} has no right DESCRIBE on group 'billing'",
    "sql 'select * from orders'": f"orders-0: {ADA} has no right READ on topic 'orders'",
    "sql 'select * from orders, other'": f"other: {ADA} has no right DESCRIBE on topic 'other'",
    "topic describe orders": f"orders: {ADA} has no right DESCRIBE_CONFIGS on topic 'orders'",
    "topic trim orders --offset 1 --yes": f"orders-0: {ADA} has no right DELETE on topic 'orders'",
    "topic delete orders --yes": f"orders: {ADA} has no right DELETE on topic 'orders'",
    "topic reassign orders -r 0": ALTER,
    "group list billing": f"billing: {ADA} has no right DESCRIBE on group 'billing'",
    "group lag billing": f"billing: {ADA} has no right DESCRIBE on group 'billing'",
    "group delete reports --yes": f"reports: {ADA} has no right DELETE on group 'reports'",
    "bench consume orders": f"orders-0: {ADA} has no right READ on topic 'orders'",
}
"""She may see a topic and a group, and do nothing with them."""


@pytest.fixture
def records(operator: Millrace) -> Millrace:
    """The operator, after a group has read a record."""
    assert operator.process("produce", "orders", stdin=b"one\ntwo\n").returncode == 0
    done = operator.process("consume", "orders", "-g", "reports", "--count", "1")
    assert done.returncode == 0
    return operator


def check(operator: Millrace, refusals: dict[str, str]) -> None:
    """Each command ends with its sentence, and prints nothing else but what it has done."""
    wrong = []
    for command, sentence in refusals.items():
        code, out, errors = as_ada(operator, *shlex.split(command), stdin=_stdin(command))
        lines = [line for line in errors.splitlines() if not line.startswith("sent 0 records")]
        if (code, out, lines) != (Exit.REFUSED, "", [f"millrace: {sentence}"]):
            wrong.append(f"{command}: {code} {out!r} {errors!r}")
    assert not wrong, "\n".join(wrong)


def _stdin(command: str) -> bytes | None:
    return b"value\n" if command.startswith("produce") else None


def test_commands_without_any_right_say_which_one_is_missing(records: Millrace) -> None:
    check(records, WITHOUT_RIGHTS)


def test_commands_with_some_rights_say_which_one_is_missing(records: Millrace) -> None:
    for kind, name in (("--topic", "orders"), ("--group", "reports")):
        assert records("acl", "add", "ada", "--allow", "describe", kind, name).exit_code == 0
    check(records, WITH_FEW_RIGHTS)


def test_a_topic_of_a_benchmark_that_was_refused_is_not_looked_for(operator: Millrace) -> None:
    code, _, errors = as_ada(operator, "bench", "produce", "-n", "1")
    assert code == Exit.REFUSED
    (line,) = errors.splitlines()
    assert "no right CREATE on topic 'bench-" in line


def test_a_list_has_what_a_user_may_see(records: Millrace) -> None:
    for kind in ("--topic", "--group"):
        flags = ("acl", "add", "ada", "--allow", "describe", kind, "or", "--prefixed")
        assert records(*flags).exit_code == 0
    code, topics, errors = as_ada(records, "topic", "list")
    assert (code, errors) == (0, "")
    # She may not ask for the bytes on disks.
    assert topics == "orders\t1\t1\t-\norders-eu\t1\t1\t-\n"
    assert as_ada(records, "group", "list") == (0, "", "")
