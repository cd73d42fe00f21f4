"""Tables of messages and records: a row for each field, those of the structs inside it among them.

Owns their form. A struct that several messages have is shown in the first of them; the others name
that section.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from millrace_protocol.api import APIS, ApiKey, Listener, apis_of
from millrace_protocol.messages.error_response import ErrorResponse
from millrace_protocol.metadata_records import RECORD_TYPES
from millrace_protocol.primitives import ArrayOf, WireType
from millrace_protocol.schema import Message, Struct, wire_fields

_WITHOUT_API = (25, 26, 36, 44)
"""Sections of W-4 that are about no api."""
_LAST_VERSION = max(api.max_version for api in APIS.values())


def slug(key: ApiKey) -> str:
    """An api's name as part of an anchor or a file name: `create-topics`."""
    return key.name.lower().replace("_", "-")


@dataclass(frozen=True, slots=True)
class Row:
    """One field, or the two that say what became of something."""

    name: str
    type: str
    meaning: str
    since: int


def message_table(cls: type[Message]) -> str:
    """The message with its doc; without the column `since` where that is 0 throughout."""
    doc = " ".join((cls.__doc__ or "").split())
    rows = list(_rows(cls, _section(cls), ""))
    if not rows:
        return f"**{cls.__name__}**: {doc} It has no fields."
    has_since = any(row.since for row in rows)
    return "\n".join(
        [
            f"**{cls.__name__}**: {doc}",
            "",
            "| field | type | meaning |" + (" since |" if has_since else ""),
            "|---|---|---|" + ("---|" if has_since else ""),
            *(
                f"| {row.name} | {row.type} | {row.meaning} |"
                + (f" {row.since} |" if has_since else "")
                for row in rows
            ),
        ]
    )


def metadata_record_table() -> str:
    """Every record of the metadata log: a row for it, and one for each of its fields."""
    rows = ["| type, field | type | meaning |", "|---|---|---|"]
    for type_id, (cls, version) in RECORD_TYPES.items():
        doc = " ".join((cls.__doc__ or "").split())
        rows.append(f"| **{type_id} {cls.__name__}**, version {version} | | {doc} |")
        rows += _record_rows(cls, version, "")
    return "\n".join(rows)


def _record_rows(cls: type[Message], version: int, prefix: str) -> Iterator[str]:
    for name, field in wire_fields(cls, version):
        since = f"; since version {field.since}" if field.since else ""
        yield f"| {prefix}{name} | {field.type.spec_name} | {field.doc}{since} |"
        struct = _struct(field.type)
        if struct is not None:
            yield from _record_rows(struct, version, f"{prefix}{name}[].")


def _rows(cls: type[Message], section: str, prefix: str) -> Iterator[Row]:
    for name, field in wire_fields(cls, _LAST_VERSION):
        if name == "error_message":
            continue
        unit = f" ({field.unit})" if field.unit else ""
        shown, type_ = f"{prefix}{name}", field.type.spec_name
        if name == "error_code" and "error_message" in dict(wire_fields(cls, _LAST_VERSION)):
            shown, type_ = f"{shown}, error_message", f"{type_}, nullable string"
        struct = _struct(field.type)
        if struct is not None and _section(struct) != section:
            type_ = f"{type_} ({_section(struct)})"
        yield Row(shown, f"{type_}{unit}", field.doc, field.since)
        if struct is not None and _section(struct) == section:
            yield from _rows(struct, section, f"{prefix}{name}[].")


def _struct(type_: WireType) -> type[Message] | None:
    element = type_.element if isinstance(type_, ArrayOf) else type_
    return element.cls if isinstance(element, Struct) else None


def _messages() -> Iterator[tuple[str, type[Message]]]:
    """Every message with the section that shows it, in the order of the document."""
    yield "W-2.4", ErrorResponse
    of_clients = apis_of(Listener.CLIENT).values()
    of_brokers = (api for api in APIS.values() if Listener.CLIENT not in api.listeners)
    of_apis = (number for number in count(1) if number not in _WITHOUT_API)
    for section, apis, numbers in (("W-4", of_clients, of_apis), ("W-12", of_brokers, count(1))):
        for number, api in zip(numbers, apis, strict=False):
            yield f"{section}.{number}", api.request
            yield f"{section}.{number}", api.response


def _structs(cls: type[Message]) -> Iterator[type[Message]]:
    yield cls
    for _, field in wire_fields(cls, _LAST_VERSION):
        struct = _struct(field.type)
        if struct is not None:
            yield from _structs(struct)


def _section(struct: type[Message]) -> str:
    return next(section for section, message in _messages() if struct in _structs(message))
