"""`docs/kafka.md` has every api that the broker names."""

from __future__ import annotations

import re
from pathlib import Path

from millrace_protocol.kafka.apis import KAFKA_APIS
from millrace_server.dialects.kafka.handlers import HANDLERS

PAGE = Path(__file__).parents[2] / "docs" / "kafka.md"
_ROW = re.compile(r"\| (\w+) \| (\d+) \| (\d+) to (\d+) \| [^|]+ \|")


def test_the_page_has_every_api_with_its_versions() -> None:
    rows = [match.groups() for match in map(_ROW.fullmatch, PAGE.read_text().splitlines()) if match]
    assert rows == [
        (api.name, str(int(api.key)), str(api.min_version), str(api.max_version))
        for api in sorted(KAFKA_APIS.values(), key=lambda api: api.key)
    ]


def test_every_api_that_is_named_has_a_handler() -> None:
    assert HANDLERS.keys() == KAFKA_APIS.keys()
