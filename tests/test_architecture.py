"""ARCHITECTURE.md is true: its generated part is up to date, its paths exist."""

from __future__ import annotations

import re
from pathlib import Path

from millrace_protocol.spec.document import parts, regenerate
from millrace_server.group.states import state_diagram

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "ARCHITECTURE.md"
GENERATORS = {"group-states": lambda: f"```mermaid\n{state_diagram()}```"}


def test_the_state_diagram_of_groups_is_that_of_the_transition_table() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert parts(text) == ["group-states"]
    current = regenerate(text, GENERATORS)
    assert text == current, "put what state_diagram() returns between the markers"


def test_every_path_where_to_look_is_there() -> None:
    table = DOCUMENT.read_text(encoding="utf-8").split("## Where to look")[1]
    paths = re.findall(r"`((?:protocol|server|clients|spark_connector)/[^`]*)`", table)
    assert len(paths) > 8
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_place_that_the_glossary_names_is_there() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    places = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)+(?:\.py)?|wire_spec\.md)`", text))
    assert len(places) > 40
    roots = (ROOT, ROOT / "server" / "millrace_server", ROOT / "protocol")
    missing = [p for p in sorted(places) if not any((root / p).exists() for root in roots)]
    assert missing == []
