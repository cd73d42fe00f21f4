"""The checks of this package, asked of a broker in a process of its own."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.target import broker_process
from tests.wire import __main__ as command
from tests.wire.check import CHECKS, Check, Target
from tests.wire.unseen import UNSEEN

HERE = Path(__file__).parent
SPEC = HERE.parents[1] / "wire_spec.md"
ANCHOR = re.compile(r"^(?:#{3,4} |\*\*)(W-\d+(?:\.\d+)+)\b", re.M)
QUICK = {
    "MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "MILLRACE_LIMITS__FIRST_FRAME_TIMEOUT_MS": "2000",
}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with broker_process(tmp_path_factory.mktemp("broker"), environment=QUICK) as broker:
        yield Target(("127.0.0.1", broker.port))


@pytest.mark.parametrize("each", CHECKS, ids=lambda each: each.name)
def test_a_broker_keeps_the_rules(target: Target, each: Check) -> None:
    assert each.run(target) is None


def test_the_command_prints_the_result_of_each_rule(
    target: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    host, port = target.address
    assert command.main([f"{host}:{port}", "W-3"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert any(re.fullmatch(r"W-3\.2 +\d+ checks  ok", line) for line in printed)
    assert re.fullmatch(r"(\d+) of \1 checks passed, \d+ rules", printed[-1])


def test_a_failed_check_is_named_with_its_rules(capsys: pytest.CaptureFixture[str]) -> None:
    def always_fails(target: Target) -> None:
        raise AssertionError("1, expected 2")

    broken = Check(("W-2.1", "W-3.1"), always_fails)
    failures = command.run([broken], Target(("127.0.0.1", 1)))
    assert capsys.readouterr().out == "FAIL W-2.1 W-3.1 always_fails: 1, expected 2\n"
    assert "1 of 1 FAILED" in command.summary([broken], failures)


def test_no_broker_at_the_address_is_an_error_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command.main(["127.0.0.1:1"]) == 2
    assert "no broker at 127.0.0.1:1" in capsys.readouterr().err


def test_every_rule_is_checked_or_says_why_it_cannot_be() -> None:
    rules = set(ANCHOR.findall(SPEC.read_text(encoding="utf-8")))
    checked = {rule for each in CHECKS for rule in each.rules}
    covered = checked | set(UNSEEN)
    parents = {rule.rpartition(".")[0] for rule in rules}
    missing = {rule for rule in rules - covered - parents if rule.split(".")[0] not in UNSEEN}
    assert sorted(missing) == []
    assert sorted(checked & set(UNSEEN)) == []
    chapters = {f"W-{number}" for number in range(1, 13)}
    assert sorted(covered - rules - chapters) == []


def test_the_checks_import_nothing_but_the_standard_library() -> None:
    found = set()
    for path in HERE.glob("*.py"):
        if path == Path(__file__):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module or "")
    foreign = {name for name in found if name.split(".")[0] not in sys.stdlib_module_names}
    assert {name for name in foreign if not re.match(r"tests\.wire(\.|$)", name)} == set()
