"""`python -m tests.wire HOST:PORT [RULE|CHECK...]`: checks a broker against wire_spec.md.

Prints each check that fails, what each rule's checks found, and the rules that no check can see.
Exits with 1 when a check failed, with 2 when the broker cannot be reached.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable

from tests.wire import (
    batch_rules,
    deleting,
    fetching,
    frames,
    groups,
    offsets,
    producing,
    quorum,
    quotas,
    session,
    statistics,
    text,
    topics,
    users,
)
from tests.wire.check import CHECKS, Check, Target, chosen
from tests.wire.unseen import UNSEEN

CHAPTERS = (
    frames,
    session,
    topics,
    users,
    quotas,
    producing,
    deleting,
    batch_rules,
    fetching,
    groups,
    offsets,
    statistics,
    quorum,
    text,
)
"""The modules whose checks `CHECKS` holds once they are imported."""


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.wire", description=__doc__)
    parser.add_argument("address", metavar="HOST:PORT", help="the broker")
    parser.add_argument("only", nargs="*", help="rules or checks, by the beginning of the name")
    options = parser.parse_args(arguments)
    host, _, port = options.address.rpartition(":")
    target = Target((host.strip("[]"), int(port)))
    try:
        target.connect(hello=False).socket.close()
    except OSError as error:
        print(f"no broker at {options.address}: {error}", file=sys.stderr)
        return 2
    checks = list(chosen(options.only))
    failures = run(checks, target)
    print(summary(checks, failures))
    return 1 if failures else 0


def run(checks: Iterable[Check], target: Target) -> dict[str, str]:
    """Runs the checks; why each that fails does, by its name."""
    failures = {}
    for each in checks:
        reason = each.run(target)
        if reason is not None:
            failures[each.name] = reason
            print(f"FAIL {' '.join(each.rules)} {each.name}: {reason}", flush=True)
    return failures


def summary(checks: list[Check], failures: dict[str, str]) -> str:
    """A line for each rule, and one for all."""
    by_rule: dict[str, list[Check]] = defaultdict(list)
    for each in checks:
        for rule in each.rules:
            by_rule[rule].append(each)
    lines = []
    for rule in sorted(by_rule, key=number):
        failed = sum(each.name in failures for each in by_rule[rule])
        outcome = f"{failed} of {len(by_rule[rule])} FAILED" if failed else "ok"
        lines.append(f"{rule:<10} {len(by_rule[rule]):>3} checks  {outcome}")
    if len(checks) == len(CHECKS):
        lines += [f"{rule:<10} not seen    {UNSEEN[rule]}" for rule in sorted(UNSEEN, key=number)]
    passed = len(checks) - len(failures)
    lines.append(f"{passed} of {len(checks)} checks passed, {len(by_rule)} rules")
    return "\n".join(lines)


def number(rule: str) -> tuple[int, ...]:
    """Where a rule stands in the document."""
    return tuple(int(part) for part in rule.removeprefix("W-").split("."))


if __name__ == "__main__":
    sys.exit(main())
