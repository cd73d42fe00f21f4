"""`docs/kafka.md` has every api that the broker names, and every known difference."""

from __future__ import annotations

import re
from pathlib import Path

from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka.apis import KAFKA_APIS, KafkaApiKey
from millrace_protocol.kafka.topics import CreatableTopic, CreateTopicsRequest
from millrace_server.dialects.kafka.handlers import HANDLERS
from tests.kafka.known_differences import KNOWN, SILENT, Difference

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


def test_the_page_explains_every_known_difference() -> None:
    text = PAGE.read_text()
    begin = text.index("if a difference is of another kind than these:")
    lines = text[begin : text.index("**Bounds.**")].splitlines()
    explained = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
    assert len(explained) == len(KNOWN)
    for sentence, line in zip(KNOWN, explained, strict=True):
        assert line.startswith(f"{sentence} ")


def test_a_difference_is_known_only_for_what_the_page_says() -> None:
    """A code that is simply another one is of no known kind."""
    request = CreateTopicsRequest((CreatableTopic("t", 1, 1),), 1_000)
    theirs = {"topics": [{"name": "t", "error_code": ErrorCode.TOPIC_ALREADY_EXISTS}]}
    ours = {"topics": [{"name": "t", "error_code": ErrorCode.NONE}]}
    api = KAFKA_APIS[KafkaApiKey.CREATE_TOPICS]
    assert Difference(api, 7, request, theirs, ours).known_as() is None
    assert Difference(api, 7, request, SILENT, ours).known_as() is not None
    twice = CreateTopicsRequest(request.topics * 2, 1_000)
    assert Difference(api, 7, twice, theirs, ours).known_as() is not None
