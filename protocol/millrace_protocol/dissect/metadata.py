"""The values of the metadata log: type, version and every field of a record.

Owns how a record of the cluster's metadata is shown, and by which file name a segment or snapshot
of it is known. The fields come from `metadata_records` alone.
"""

from __future__ import annotations

from millrace_protocol.dissect.body import dissect_body
from millrace_protocol.dissect.span import Buffer, Limits, Span
from millrace_protocol.errors import WireError
from millrace_protocol.metadata_records import PREFIX, record_class

METADATA_DIRECTORY_PREFIX = "__cluster_metadata-"
SNAPSHOT_SUFFIX = ".checkpoint"


def is_metadata_file(path: str) -> bool:
    """Whether a path names a segment or a snapshot of the metadata log.

    >>> is_metadata_file("data/__cluster_metadata-0/00000000000000000000.log")
    True
    """
    directory = path.rpartition("/")[0].rpartition("/")[2]
    return path.endswith(SNAPSHOT_SUFFIX) or directory.startswith(METADATA_DIRECTORY_PREFIX)


def dissect_metadata_value(
    data: Buffer, start: int, end: int, *, name: str, limits: Limits
) -> Span:
    """The record in `data[start:end]`, which is the value of a record of the log."""
    if end - start < PREFIX.size:
        fault = f"a metadata record begins with {PREFIX.size} bytes and {end - start} are left"
        return Span(start, end, name, "metadata record", fault=fault)
    type_id, version = PREFIX.unpack_from(data, start)
    prefix = [
        Span(start, start + 2, f"{name}.type", "int16", type_id),
        Span(start + 2, start + 4, f"{name}.version", "int16", version),
    ]
    try:
        cls = record_class(type_id, version)
    except WireError as error:
        return Span(start, end, name, "metadata record", fault=error.reason, children=tuple(prefix))
    fields, _ = dissect_body(
        cls, version, data, start + PREFIX.size, end, prefix=f"{name}.", limits=limits
    )
    return Span(start, end, name, cls.__name__, children=(*prefix, *fields))
