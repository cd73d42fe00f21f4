"""The generated parts of `wire_spec.md`: tables from declarations, and annotated examples.

Owns their form. Knows nothing of the document around them: `document` puts each between its
markers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from millrace_protocol.api import APIS
from millrace_protocol.dissect import dissect_frames, render
from millrace_protocol.errors import ERROR_TRAITS, ErrorCode
from millrace_protocol.messages.refusal import Refusal
from millrace_protocol.primitives import ArrayOf, WireType
from millrace_protocol.records import BATCH_HEADER
from millrace_protocol.schema import Message, Struct, wire_fields
from millrace_protocol.spec.examples import EXAMPLES, slug

_ROW_BYTES = 16

_BATCH_MEANINGS = {
    "base_offset": ("offset of the first record; 0 from a client, set by the broker", ""),
    "batch_length": ("bytes after this field: the batch is 12 bytes longer", "bytes"),
    "partition_leader_epoch": ("-1 from a client, set by the broker", ""),
    "magic": ("2", ""),
    "crc": ("CRC-32C of every byte from `attributes` to the end of the batch", ""),
    "attributes": ("bit field, W-5.2", ""),
    "last_offset_delta": ("offset of the last record minus `base_offset`", ""),
    "base_timestamp": ("timestamp that the records' deltas add to", "ms since the epoch"),
    "max_timestamp": ("largest timestamp of a record", "ms since the epoch"),
    "producer_id": ("from InitProducerId; -1 for a producer that is not idempotent", ""),
    "producer_epoch": ("from InitProducerId; -1 likewise", ""),
    "base_sequence": ("sequence number of the first record, W-4.3.4; -1 likewise", ""),
    "record_count": ("records that follow", ""),
}


def generators() -> dict[str, Callable[[], str]]:
    """What can stand between markers: its name, and the function that makes it."""
    made: dict[str, Callable[[], str]] = {
        "apis": _apis,
        "errors": _errors,
        "batch-header": _batch_header,
        "refusal": partial(_message, Refusal),
    }
    for api in APIS.values():
        made[f"{slug(api.key)}-request"] = partial(_message, api.request)
        made[f"{slug(api.key)}-response"] = partial(_message, api.response)
    for name in EXAMPLES:
        made[f"example: {name}"] = partial(_example, name)
    return made


def _apis() -> str:
    rows = ["| key | api | versions | request | response |", "|---|---|---|---|---|"]
    rows += [
        f"| {int(api.key)} | {api.name} | {api.min_version} to {api.max_version} "
        f"| `{api.request.__name__}` | `{api.response.__name__}` |"
        for api in APIS.values()
    ]
    return "\n".join(rows)


def _errors() -> str:
    rows = [
        "| number | name | retriable | refresh metadata | fenced | sentence |",
        "|---|---|---|---|---|---|",
    ]
    for code in ErrorCode:
        traits = ERROR_TRAITS[code]
        marks = (traits.retriable, traits.refresh_metadata, traits.fenced)
        shown = " | ".join("yes" if mark else "" for mark in marks)
        rows.append(f"| {int(code)} | {code.name} | {shown} | {traits.sentence} |")
    return "\n".join(rows)


def _batch_header() -> str:
    rows = ["| byte | field | type | unit | meaning |", "|---|---|---|---|---|"]
    position = 0
    for declared in BATCH_HEADER.subcons:
        name = str(declared.name)
        size = declared.sizeof()
        type_ = "uint32" if name == "crc" else f"int{size * 8}"
        meaning, unit = _BATCH_MEANINGS[name]
        rows.append(f"| {position} | {name} | {type_} | {unit} | {meaning} |")
        position += size
    return "\n".join(rows)


def _message(cls: type[Message]) -> str:
    """The table of a message, and behind it those of the structs it holds, outermost first."""
    return "\n\n".join(_table(struct) for struct in _structs(cls))


def _structs(cls: type[Message]) -> Iterator[type[Message]]:
    yield cls
    for _, field in wire_fields(cls, _LAST_VERSION):
        element = field.type.element if isinstance(field.type, ArrayOf) else field.type
        if isinstance(element, Struct):
            yield from _structs(element.cls)


_LAST_VERSION = max(api.max_version for api in APIS.values())


def _table(cls: type[Message]) -> str:
    doc = " ".join((cls.__doc__ or "").split())
    rows = [
        f"**{cls.__name__}**: {doc}",
        "",
        "| field | type | unit | meaning | since |",
        "|---|---|---|---|---|",
    ]
    rows += [
        f"| {name} | {type_name(field.type)} | {field.unit} | {field.doc} | {field.since} |"
        for name, field in wire_fields(cls, _LAST_VERSION)
    ]
    return "\n".join(rows)


def type_name(type_: WireType) -> str:
    """The type as the specification writes it."""
    return type_.spec_name


def _example(name: str) -> str:
    """The frame as a hex dump, then explained."""
    frame = EXAMPLES[name]
    rows = [
        f"{start:08x}: {frame[start : start + _ROW_BYTES].hex(' ')}"
        for start in range(0, len(frame), _ROW_BYTES)
    ]
    lines = [line.rstrip() for line in render(dissect_frames(frame))]
    return "\n".join(["```hex", *rows, "```", "", "```text", *lines, "```"])
