"""Lines that tell of an error carry its traceback, whichever way they are written."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from millrace_server.logs import configure, get_logger

configure(level="info", style=sys.argv[1])
log = get_logger("millrace.test")
secret = "what a record says"

def breaks():
    raise LookupError("the reason")

try:
    breaks()
except LookupError as error:
    if sys.argv[2] == "error":
        log.error("request failed", api=3, exc_info=error)
    else:
        log.exception("request failed", api=3)
log.info("went on", exc_info=None)
"""


def written(style: str, call: str) -> list[str]:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, style, call], capture_output=True, text=True, check=True
    )
    assert ended.stdout == ""
    return ended.stderr.splitlines()


@pytest.mark.parametrize("call", ["error", "exception"])
def test_a_json_line_has_the_traceback(call: str) -> None:
    failed, went_on = map(json.loads, written("json", call))

    assert failed["api"] == 3 and "exc_info" not in failed
    assert failed["exception"].startswith("Traceback")
    assert "in breaks" in failed["exception"]
    assert failed["exception"].endswith("LookupError: the reason")
    assert "exception" not in went_on


@pytest.mark.parametrize("call", ["error", "exception"])
def test_a_console_line_is_followed_by_the_traceback_without_values(call: str) -> None:
    first, *others = written("console", call)

    assert "request failed" in first and "api=3" in first
    assert "LookupError: the reason" in others
    assert any("in breaks" in line for line in others)
    assert not any("what a record says" in line for line in others)
