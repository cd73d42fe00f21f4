"""The command of the package, see there."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from millrace_protocol.spec.document import regenerate
from tests.specification.broker_parts import MARKER, generators
from tests.specification.captures import module_text
from tests.specification.session import record

ROOT = Path(__file__).parents[2]
CAPTURES = ROOT / "protocol" / "millrace_protocol" / "spec" / "captures.py"
DOCUMENT = ROOT / "wire_spec.md"


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.specification", description=__doc__)
    parser.add_argument("command", choices=("record", "update"))
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if outdated")
    options = parser.parse_args(arguments)
    if options.command == "record":
        CAPTURES.write_text(module_text(asyncio.run(record())), encoding="utf-8")
        return 0
    before = DOCUMENT.read_text(encoding="utf-8")
    after = regenerate(before, generators(), marker=MARKER)
    if not options.check:
        DOCUMENT.write_text(after, encoding="utf-8")
    return int(options.check and after != before)


if __name__ == "__main__":
    sys.exit(main())
