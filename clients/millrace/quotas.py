"""Quotas of clients, as the admin client takes and returns them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from millrace.errors import ConfigError

Quota = Literal[
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
]
"""What is bounded on each broker: bytes of records sent and fetched a second, the time of one
processor in percent, partitions created and deleted a second, connections a second."""
EACH = "*"
"""Stands for each name that has no quota of its own."""


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """The clients that have a quota: of a user, with a client id, of both, or of an address.

    A name is shared by all clients that have it; `EACH` gives the quota to each name for itself.
    `connection_creation_rate` is of an `ip`, and the others are not. Raises `ConfigError`.
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def __post_init__(self) -> None:
        has_client = self.user is not None or self.client_id is not None
        if has_client == (self.ip is not None):
            raise ConfigError("a quota is of a user, a client_id, both, or an ip")
