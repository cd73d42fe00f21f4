"""The specification: generated parts are up to date, examples decode, rules have tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

import pytest

from millrace_protocol import framing, primitives, records
from millrace_protocol.acls import Operation, PatternType, Permission, ResourceType
from millrace_protocol.api import APIS, ApiKey
from millrace_protocol.codec import decode, encode
from millrace_protocol.dissect import dissect_frames, dissect_hex
from millrace_protocol.errors import ERROR_TRAITS, ErrorCode
from millrace_protocol.framing import read_request_header, read_response_header
from millrace_protocol.messages.error_response import ErrorResponse
from millrace_protocol.messages.split_ranges import PIECES_MAX
from millrace_protocol.schema import BrokerRequest, Message, Request
from millrace_protocol.spec.__main__ import main
from millrace_protocol.spec.document import UnknownPart, parts, regenerate
from millrace_protocol.spec.examples import EXAMPLES
from millrace_protocol.spec.tables import NOT_SENT, generators
from millrace_server.dialects.text.commands import COMMANDS
from millrace_server.dialects.text.lines import ANSWER_CHARACTERS

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "wire_spec.md"
ANCHOR = re.compile(r"^(?:#{2,4} |\*\*)(W-\d+(?:\.\d+)*)\b", re.M)
CITATION = re.compile(r"\bW-\d+(?:\.\d+)*")


@pytest.fixture(scope="module")
def text() -> str:
    return SPEC.read_text(encoding="utf-8")


def sections(text: str) -> Iterator[tuple[str, str]]:
    """Every anchor, and the text that belongs to it and to no anchor below it."""
    found = list(ANCHOR.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    for match, end in zip(found, ends, strict=True):
        yield match[1], text[match.start() : end]


def cited(folder: str) -> set[str]:
    files = (ROOT / folder).rglob("*.py")
    return {anchor for file in files for anchor in CITATION.findall(file.read_text("utf-8"))}


def test_generated_parts_are_up_to_date() -> None:
    assert main([str(SPEC), "--check"]) == 0


def test_an_outdated_document_is_told_apart_and_brought_up_to_date(tmp_path: Path) -> None:
    copy = tmp_path / "spec.md"
    copy.write_text("a\n<!-- generated: errors -->\nold\n<!-- end -->\nb\n", encoding="utf-8")
    assert main([str(copy), "--check"]) == 1
    assert main([str(copy)]) == 0
    assert main([str(copy), "--check"]) == 0
    assert "| 45 | OUT_OF_ORDER_SEQUENCE_NUMBER |" in copy.read_text(encoding="utf-8")


def test_a_marker_that_nothing_makes_is_refused() -> None:
    with pytest.raises(UnknownPart, match="no generated part 'fetsch'"):
        regenerate("<!-- generated: fetsch -->\n<!-- end -->", generators())


def test_every_message_and_every_error_is_in_the_document(text: str) -> None:
    tables = {name for name in generators() if not name.startswith("example")}
    assert tables <= set(parts(text))
    shown = {code for code in ErrorCode if f"| {code.name} |" in text}
    assert set(ErrorCode) - shown == NOT_SENT
    assert set(ERROR_TRAITS) == set(ErrorCode)


def test_the_hex_of_every_example_in_the_document_decodes(text: str) -> None:
    """W-2.3, W-2.4, W-4.0.1"""
    dumps = re.findall(r"<!-- generated: example: (.*?) -->\n```hex\n(.*?)```", text, re.S)
    assert len(dumps) >= 12
    for name, dump in dumps:
        (span,) = dissect_hex(dump)
        assert not list(span.faults()), name
        frame = bytes(span.buffer or b"")
        assert frame == EXAMPLES[name]
        if name.endswith("request"):
            request = read_request_header(frame)
            cls, version, body = (
                APIS[ApiKey(request.api)].request,
                request.version,
                frame[request.body_position :],
            )
        else:
            response = read_response_header(frame)
            cls = ErrorResponse if response.error_code else APIS[ApiKey(response.api)].response
            version = 0 if response.error_code else response.version
            body = frame[framing.HEADER_SIZE :]
        assert encode(decode(cls, body, version), version) == body


def test_anchors_are_unique_and_in_order(text: str) -> None:
    anchors = ANCHOR.findall(text)
    numbers = [tuple(map(int, anchor[2:].split("."))) for anchor in anchors]
    assert numbers == sorted(set(numbers))


def test_every_must_is_cited_by_a_test(text: str) -> None:
    tested = cited("tests")
    rules = {anchor for anchor, body in sections(text) if re.search(r"\bMUST\b", body)}
    assert len(rules) > 20
    assert sorted(rules - tested) == []


def test_every_citation_has_its_anchor(text: str) -> None:
    anchors = {anchor for anchor, _ in sections(text)}
    for folder in ("protocol", "server", "clients", "tests", "examples"):
        assert sorted(cited(folder) - anchors) == [], folder


def test_numbers_in_the_document_are_those_of_the_code(text: str) -> None:
    """W-2.2, W-3.3, W-3.5, W-4.23.2, W-5.4, W-6.1, W-6.2, W-8.3, W-8.4, W-12.0.2"""
    body = dict(sections(text))
    assert f"{framing.FRAME_BYTES_MAX_BEFORE_HELLO:,}" in body["W-6.1"]
    assert f"{framing.FRAME_BYTES_MAX:,}" in body["W-6.2"]
    assert f"0 to {framing.CLIENT_ID_BYTES_MAX}" in body["W-2.2"]
    assert f"{primitives.STRING_BYTES_MAX:,}" in body["W-3.3"]
    assert f"{Request.array_max:,} in a request" in body["W-3.5"]
    assert f"{Request.array_max:,} partitions" in body["W-6.4"]
    assert f"{primitives.ARRAY_COUNT_MAX:,} in a response" in body["W-3.5"]
    assert f"{Request.elements_max:,} elements in a request" in body["W-3.5"]
    assert f"{Message.elements_max:,} in a response" in body["W-3.5"]
    assert f"{BrokerRequest.array_max:,} elements in one array" in body["W-12.0.2"]
    assert f"{BrokerRequest.elements_max:,} in all of them" in body["W-12.0.2"]
    assert f"at most {PIECES_MAX:,} pieces" in body["W-4.23.2"]
    assert f"{records.PAYLOAD_BYTES_MAX >> 20} MiB" in body["W-5.4"]
    for anchor in ("W-8.3", "W-8.4"):
        assert f"reaches {ANSWER_CHARACTERS >> 10} KiB" in body[anchor]


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("resource_type", ResourceType),
        ("pattern_type", PatternType),
        ("operation", Operation),
        ("permission", Permission),
    ],
)
def test_numbers_of_access_control_are_those_of_the_code(
    text: str, field: str, words: type[IntEnum]
) -> None:
    """W-9.5"""
    numbers = re.search(rf"^\| {field} \| (\d .*) \|$", text, re.M)
    assert numbers is not None
    for word in (each for each in words if each.name not in ("ANY", "MATCH")):
        assert f"{word:d} {word.name.lower().replace('_', ' ')}" in numbers[1]


def test_text_commands_in_the_document_are_those_of_the_broker(text: str) -> None:
    """W-8.3"""
    table = text.split("<!-- text-commands")[1].split("<!-- end of text-commands -->")[0]
    rows = re.findall(r"^\| ([A-Z].*?) \|", table, re.M)
    typed = [command.usage for command in COMMANDS.values()]
    assert set(typed) <= set(rows)
    assert {row.split()[0] for row in set(rows) - set(typed)} <= {"AUTH", "TAIL", "QUIT"}


def test_a_frame_explained_by_the_document_has_the_header_it_draws() -> None:
    """W-2.1"""
    frame = EXAMPLES["hello-request"]
    (span,) = dissect_frames(frame)
    starts = {leaf.name: leaf.start for leaf in span.leaves()}
    header = ("length", "magic", "api", "version", "correlation_id", "client_id.size", "client_id")
    assert [starts[name] for name in header] == [0, 4, 6, 8, 10, 14, 16]
