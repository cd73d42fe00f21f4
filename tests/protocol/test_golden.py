"""Every message, byte by byte: the bytes of the examples and their explanation are pinned.

A change here is a change of the wire, or of what people read. To accept one, run

    MILLRACE_REWRITE_GOLDEN=1 pytest tests/protocol/test_golden.py

and look at the difference before you commit it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millrace_protocol.dissect import dissect_frames, dissect_hex, render
from millrace_protocol.spec.examples import EXAMPLES

GOLDEN = Path(__file__).parent / "golden"
REWRITE = bool(os.environ.get("MILLRACE_REWRITE_GOLDEN"))


def golden_text(frame: bytes) -> str:
    rows = [frame[start : start + 32].hex() for start in range(0, len(frame), 32)]
    return "\n".join([*rows, "", *(line.rstrip() for line in render(dissect_frames(frame)))]) + "\n"


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_a_message_has_the_bytes_and_the_explanation_it_always_had(name: str) -> None:
    path = GOLDEN / f"{name}.txt"
    text = golden_text(EXAMPLES[name])
    if REWRITE:
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_hex_of_a_golden_file_is_explained_as_it_says(name: str) -> None:
    digits, explanation = (GOLDEN / f"{name}.txt").read_text(encoding="utf-8").split("\n\n", 1)
    lines = [line.rstrip() for line in render(dissect_hex(digits))]
    assert "\n".join(lines) + "\n" == explanation


def test_there_is_no_golden_file_without_its_example() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(EXAMPLES)
