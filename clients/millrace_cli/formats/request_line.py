r"""A request as typed text: `fetch partitions={"topic": "clicks", "fetch_offset": 7}`.

    line     = api ["@" version] *( field "=" value )
    value    = JSON, or a word without spaces, which is text

Owns that grammar, the defaults, and the help, which comes from the same declarations as the codec.
Short forms: one element for an array of one; text for a struct, as its first field (`fetch
partitions=clicks`); records as a list of values or of objects with `key`, `value` and
`timestamp_ms`, or as hex. Does no I/O; an error names the field.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
import uuid
from collections.abc import Iterator
from typing import Any

from millrace_protocol.api import APIS, Api, ApiKey
from millrace_protocol.primitives import ArrayOf, WireType
from millrace_protocol.records import encode_batch
from millrace_protocol.schema import Message, StructOf, codec, wire_fields

_FIELD = re.compile(r"\s*(?P<name>\w+)\s*=\s*")
_WORD = re.compile(r"\S+")
_JSON = json.JSONDecoder()
_REQUIRED = object()

_DEFAULTS: dict[str, Any] = {
    "software": "millrace nc",
    "software_version": "",
    "acks": -1,
    "timeout_ms": 30_000,
    "max_wait_ms": 0,
    "min_bytes": 0,
    "max_bytes": 1 << 20,
    "partition": 0,
    "leader_epoch": -1,
    "fetch_offset": 0,
    "timestamp_ms": -1,
    "replication_factor": -1,
    "NewTopic.partitions": -1,
    "configs": (),
    "validate_only": False,
    "producer_id": -1,
    "producer_epoch": -1,
}
"""By field, or by `Message.field` for an ambiguous name. Nullable fields default to null."""


class RequestError(ValueError):
    """The line is not a request; the message names the field and its type."""


def read_request(line: str, *, now_ms: int) -> tuple[Api, int, Message]:
    """The api, the version and the request in a line. Raises `RequestError`.

    `now_ms` is the default timestamp of records.

    >>> read_request("metadata topics=clicks", now_ms=0)[2]
    MetadataRequest(topics=('clicks',))
    """
    name, _, rest = line.strip().partition(" ")
    name, at, number = name.partition("@")
    api = find_api(name)
    if at and not (number.isascii() and number.isdigit() and len(number) < 6):
        raise RequestError(f"{number!r} is not a version")
    version = int(number) if at else api.max_version
    if version >= 1 << 15:
        raise RequestError(f"{number} is not a version")
    given = dict(_fields(rest))
    request = _message(codec(api.request, version), given, "", now_ms)
    return api, version, request


def find_api(name: str) -> Api:
    """An api by name, in any case, with or without separators. Raises `RequestError`."""
    wanted = _folded(name)
    names = {_folded(key.name): api for key, api in APIS.items()}
    if wanted not in names:
        near = difflib.get_close_matches(wanted, names, n=1)
        hint = f"did you mean {names[near[0]].key.name.lower()}?" if near else "type help"
        raise RequestError(f"there is no api {name!r}; {hint}")
    return names[wanted]


def apis_help() -> Iterator[str]:
    """A line for each api: name, versions, purpose."""
    for key, api in sorted(APIS.items()):
        doc = (api.request.__doc__ or "").split("\n")[0]
        yield f"  {api_name(key):<21} v{api.min_version}-{api.max_version}  {doc}"


def api_help(api: Api) -> Iterator[str]:
    """The fields of an api's request and response: name, type, default and meaning."""
    yield f"{api_name(api.key)}, versions {api.min_version} to {api.max_version}"
    for title, cls in (("request", api.request), ("response", api.response)):
        yield f"{title}: {(cls.__doc__ or '').split(chr(10))[0]}"
        yield from _fields_help(cls, api.max_version, "  ", defaults=title == "request")


def api_name(key: ApiKey) -> str:
    """The name of an api in a request line."""
    return key.name.lower()


def _fields_help(cls: type[Message], version: int, indent: str, *, defaults: bool) -> Iterator[str]:
    struct = codec(cls, version)
    fields = wire_fields(cls, version)
    for (name, field), type_ in zip(fields, struct.types, strict=True):
        default = _default(struct, name, type_)
        shown = "" if default is _REQUIRED or not defaults else f" [{json.dumps(default)}]"
        unit = f", {field.unit}" if field.unit else ""
        yield f"{indent}{name}: {type_.spec_name}{shown}  {field.doc}{unit}"
        inner = type_.element if isinstance(type_, ArrayOf) else type_
        if isinstance(inner, StructOf):
            yield from _fields_help(inner.cls, version, indent + "  ", defaults=defaults)


def _fields(text: str) -> Iterator[tuple[str, Any]]:
    position = 0
    while text[position:].strip():
        match = _FIELD.match(text, position)
        if match is None:
            raise RequestError(f"{text[position:].strip()!r}: expected field=value")
        value, position = _value(text, match.end(), match["name"])
        yield match["name"], value


def _value(text: str, start: int, name: str) -> tuple[Any, int]:
    try:
        value, end = _JSON.raw_decode(text, start)
    except RecursionError:
        raise RequestError(f"{name}: brackets are nested too deeply") from None
    except ValueError as error:
        if text[start : start + 1] in ("[", "{", '"'):
            raise RequestError(f"{name}: {error}") from None
    else:
        if not text[end : end + 1].strip():
            return value, end
    word = _WORD.match(text, start)
    if word is None:
        raise RequestError(f"{name}: a value is missing")
    return word[0], word.end()


def _message(struct: StructOf, given: dict[str, Any], path: str, now_ms: int) -> Message:
    unknown = [name for name in given if name not in struct.names]
    if unknown:
        raise RequestError(
            f"{path}{unknown[0]}: unknown field; "
            f"{struct.cls.__name__} has {', '.join(struct.names)}"
        )
    values = {}
    for name, type_ in zip(struct.names, struct.types, strict=True):
        value = given[name] if name in given else _default(struct, name, type_)
        if value is _REQUIRED:
            raise RequestError(f"{path}{name}: is missing; it takes {type_.spec_name}")
        values[name] = _converted(type_, value, f"{path}{name}", now_ms)
    # The class has defaults for the fields of later versions.
    return struct.cls(**values)


def _default(struct: StructOf, name: str, type_: WireType) -> Any:
    for key in (f"{struct.cls.__name__}.{name}", name):
        if key in _DEFAULTS and not (key == name and isinstance(type_, ArrayOf) and type_.nullable):
            return _DEFAULTS[key]
    if getattr(type_, "nullable", False):
        return None
    field = next(f for f in dataclasses.fields(struct.cls) if f.name == name)
    return _REQUIRED if field.default is dataclasses.MISSING else field.default


def _converted(type_: WireType, value: Any, path: str, now_ms: int) -> Any:
    if value is None and getattr(type_, "nullable", False):
        return None
    if isinstance(type_, ArrayOf):
        elements = value if isinstance(value, list | tuple) else [value]
        return tuple(
            _converted(type_.element, element, f"{path}[{index}]", now_ms)
            for index, element in enumerate(elements)
        )
    if isinstance(type_, StructOf):
        given = value if isinstance(value, dict) else {type_.names[0]: value}
        return _message(type_, given, f"{path}.", now_ms)
    try:
        return _primitive(type_.spec_name, value, now_ms)
    except (ValueError, TypeError, RecursionError) as error:
        raise RequestError(f"{path}: {error}") from None


def _primitive(spec_name: str, value: Any, now_ms: int) -> Any:
    kind = spec_name.removeprefix("nullable ")
    if kind.startswith(("int", "uint")):
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{value!r} is not a whole number, as {spec_name} is")
        return value
    if kind == "boolean":
        if not isinstance(value, bool):
            raise ValueError(f"{value!r} is neither true nor false")
        return value
    if kind == "records" and isinstance(value, list | tuple):
        return _batch(value, now_ms)
    if kind in ("bytes", "records"):
        return bytes.fromhex(_text(value, "hex"))
    if kind == "uuid":
        return uuid.UUID(_text(value, "a uuid"))
    # `topics=7` names the topic 7.
    return str(value) if isinstance(value, int) else _text(value, "text")


def _text(value: Any, kind: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not {kind}")
    return value


def _batch(records: list[Any] | tuple[Any, ...], now_ms: int) -> bytes:
    rows = [record if isinstance(record, dict) else {"value": record} for record in records]
    for row in rows:
        if unknown := set(row) - {"key", "value", "timestamp_ms"}:
            raise ValueError(f"a record has no {min(unknown)}; key, value, timestamp_ms")
    return bytes(
        encode_batch(
            [_bytes_of(row.get("value")) for row in rows],
            keys=[_bytes_of(row.get("key")) for row in rows],
            timestamps_ms=[_timestamp_ms(row.get("timestamp_ms", now_ms)) for row in rows],
        )
    )


def _timestamp_ms(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise ValueError(f"timestamp_ms: {value!r} is not a whole number of 64 bits")
    return value


def _bytes_of(value: Any) -> bytes | None:
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    return json.dumps(value).encode()


def _folded(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()
