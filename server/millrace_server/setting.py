"""How a setting of the broker is declared: its default, and what it means.

The text travels in DescribeConfigs and stands in the reference of the settings.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

T = TypeVar("T")
_DOC = "doc"


def setting(default: T, doc: str) -> T:
    """A field of a dataclass of settings; `doc` gives meaning and unit, for people."""
    return dataclasses.field(default=default, metadata={_DOC: doc})


def doc_of(field: dataclasses.Field[Any]) -> str:
    """What a setting means; empty for a field that holds something else."""
    return str(field.metadata.get(_DOC, ""))
