"""How a setting of the broker is declared: its default, and what it means.

The text travels in DescribeConfigs and stands in the reference of the settings.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

T = TypeVar("T")
_DOC = "doc"
_IS_SECRET = "is_secret"
_RELOADS = "reloads"


def setting(default: T, doc: str, *, is_secret: bool = False, reloads: bool = False) -> T:
    """A field of a dataclass of settings; `doc` gives meaning and unit, for people.

    The value of a secret one is never shown. One that `reloads` can change while the broker runs:
    its bounds are its own, whatever the other settings are.
    """
    metadata = {_DOC: doc, _IS_SECRET: is_secret, _RELOADS: reloads}
    return dataclasses.field(default=default, repr=not is_secret, metadata=metadata)


def doc_of(field: dataclasses.Field[Any]) -> str:
    """What a setting means; empty for a field that holds something else."""
    return str(field.metadata.get(_DOC, ""))


def is_secret(field: dataclasses.Field[Any]) -> bool:
    """Whether the value of a setting is for the broker alone."""
    return bool(field.metadata.get(_IS_SECRET))


def reloads(field: dataclasses.Field[Any]) -> bool:
    """Whether a setting can change while the broker runs."""
    return bool(field.metadata.get(_RELOADS))
