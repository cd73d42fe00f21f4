"""Examples of `wire_spec.md`: frames as hex, and explained.

Owns which lines an example leaves out because another example or line shows the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from millrace_protocol.dissect import dissect_frames, render
from millrace_protocol.spec.broker_examples import BROKER_EXAMPLES
from millrace_protocol.spec.captures import EXAMPLES as CAPTURED_EXAMPLES
from millrace_protocol.spec.login_examples import LOGIN_EXAMPLES

EXAMPLES = {**CAPTURED_EXAMPLES, **LOGIN_EXAMPLES, **BROKER_EXAMPLES}
"""Whole frames by name: those between clients and a broker, and those between brokers."""
_ROW_BYTES = 32
_HEADING = re.compile(r" [0-9a-f]{8} +\d+ {20,}\S.*: (array of )?[A-Z]\w*")
"""Where an array or a struct begins: its first field says so too."""
_HEADER = re.compile(
    r"  (length|magic|api|version|correlation_id|client_id(\.size)?|error_code) = "
)
"""Fields of the header; the title names the api, the version and the correlation id."""
_HEADERS_SHOWN = frozenset({"hello-request", "hello-response", "error-response"})
_REPEATED = re.compile(r"(apis|configs)\[(?!0\])\d+\]\.")
"""Elements like those before them."""
_SHOWN_ELSEWHERE = {
    "fetch-response": re.compile(
        r"records\[0\]\.(?!base_offset|batch_length|partition_leader|crc|record_count)"
    ),
    "produce-idempotent-gzip-request": re.compile(
        r"^ ~|records\[0\]\.(?!batch_length|crc|attributes|producer|base_sequence|record_count)"
    ),
}
"""Fields of a batch that the example of Produce shows with the same values."""


def example(name: str) -> str:
    """The frame as a hex dump, then its lines."""
    frame = EXAMPLES[name]
    rows = [
        f"{start:08x}: {frame[start : start + _ROW_BYTES].hex(' ')}"
        for start in range(0, len(frame), _ROW_BYTES)
    ]
    lines = [line.rstrip() for line in render(dissect_frames(frame))]
    return "\n".join(["```hex", *rows, "```", "", "```text", *_told_once(name, lines), "```"])


def _told_once(name: str, lines: list[str]) -> Iterator[str]:
    repeated = _SHOWN_ELSEWHERE.get(name, _REPEATED)
    title, *rest = lines
    yield title
    is_cut = False
    for line in rest:
        if _HEADING.fullmatch(line):
            continue
        is_header = name not in _HEADERS_SHOWN and _HEADER.search(line)
        if is_header or repeated.search(line):
            if not is_cut:
                yield " ..."
            is_cut = True
            continue
        is_cut = False
        yield line
