"""Users of a cluster, as the admin client returns them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UserDescription:
    """A user that may authenticate with SCRAM or PLAIN.

    `iterations` has each mechanism that the user has a password for, and how often it is hashed.
    """

    name: str
    iterations: Mapping[str, int]
