"""Brings the generated parts of `wire_spec.md` up to date, or checks that they are.

python -m millrace_protocol.spec wire_spec.md            rewrite
python -m millrace_protocol.spec wire_spec.md --check    exit 1 if a rewrite would change it
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from millrace_protocol.spec.document import regenerate
from millrace_protocol.spec.tables import generators


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m millrace_protocol.spec", description=__doc__)
    parser.add_argument("document", type=Path, help="the document with the markers")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if outdated")
    options = parser.parse_args(arguments)
    path: Path = options.document
    before = path.read_text(encoding="utf-8")
    after = regenerate(before, generators())
    if before == after:
        return 0
    if options.check:
        print(f"{path} is outdated: run python -m millrace_protocol.spec {path}", file=sys.stderr)
        return 1
    path.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
