"""Brings the generated parts of `wire_spec.md` up to date, or checks them; prints the Lua.

python -m millrace_protocol.spec wire_spec.md            rewrite
python -m millrace_protocol.spec wire_spec.md --check    exit 1 if a rewrite would change it
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from millrace_protocol.spec.document import regenerate
from millrace_protocol.spec.lua import lua_script
from millrace_protocol.spec.tables import generators


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m millrace_protocol.spec", description=__doc__)
    parser.add_argument("document", nargs="?", type=Path, help="the document with the markers")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if outdated")
    parser.add_argument("--lua", action="store_true", help="print the Wireshark dissector")
    options = parser.parse_args(arguments)
    if options.lua:
        print(lua_script())
        return 0
    if options.document is None:
        parser.error("name the document, or --lua")
    return _update(options.document, check=options.check)


def _update(path: Path, *, check: bool) -> int:
    before = path.read_text(encoding="utf-8")
    after = regenerate(before, generators())
    if before == after:
        return 0
    if check:
        print(f"{path} is outdated: run python -m millrace_protocol.spec {path}", file=sys.stderr)
        return 1
    path.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
