"""The generated parts of `wire_spec.md` by name, and its tables of apis, errors and batch headers.

Knows nothing of the document around them: `document` puts each between its markers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from millrace_protocol.api import APIS, Api, Listener, apis_of
from millrace_protocol.errors import ERROR_TRAITS, ErrorCode
from millrace_protocol.messages.error_response import ErrorResponse
from millrace_protocol.records import BATCH_HEADER
from millrace_protocol.spec.examples import EXAMPLES, example
from millrace_protocol.spec.message_tables import message_table, metadata_record_table, slug

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


NOT_SENT = frozenset({ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.UNSTABLE_OFFSET_COMMIT})
"""The group coordinator knows them; no api of this protocol answers with them."""


def generators() -> dict[str, Callable[[], str]]:
    """What can stand between markers: its name, and the function that makes it."""
    made: dict[str, Callable[[], str]] = {
        "apis": partial(_apis, Listener.CLIENT),
        "broker-apis": partial(_apis, Listener.BROKER),
        "errors": _errors,
        "batch-header": _batch_header,
        "error-response": partial(message_table, ErrorResponse),
        "metadata-records": metadata_record_table,
    }
    for api in APIS.values():
        made[slug(api.key)] = partial(_both, api)
    for name in EXAMPLES:
        made[f"example: {name}"] = partial(example, name)
    return made


def _both(api: Api) -> str:
    return f"{message_table(api.request)}\n\n{message_table(api.response)}"


def _apis(listener: Listener) -> str:
    rows = ["| key | api | versions | request | response |", "|---|---|---|---|---|"]
    rows += [
        f"| {int(api.key)} | {api.name} | {api.min_version} to {api.max_version} "
        f"| `{api.request.__name__}` | `{api.response.__name__}` |"
        for api in apis_of(listener).values()
    ]
    return "\n".join(rows)


def _errors() -> str:
    rows = [
        "| number | name | retriable | refresh metadata | fenced | default message |",
        "|---|---|---|---|---|---|",
    ]
    for code in ErrorCode:
        if code in NOT_SENT:
            continue
        traits = ERROR_TRAITS[code]
        marks = (traits.retriable, traits.refresh_metadata, traits.fenced)
        shown = " | ".join("yes" if mark else "" for mark in marks)
        rows.append(f"| {int(code)} | {code.name} | {shown} | {traits.message} |")
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
