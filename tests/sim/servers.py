"""What clients connect to: one broker that is a cluster of its own, or a cluster of several.

Owns what the clients of a run, and its last readings, know of the brokers behind an address.
"""

from __future__ import annotations

from typing import Protocol


class Servers(Protocol):
    """One cluster, as its clients have it. A topic is in exactly one."""

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str:
        """HOST:PORT of each broker, as clients take it."""

    @property
    def refusal(self) -> Exception | None:
        """Why it does not start any more, after damage to what it must read."""

    def wall_ms(self) -> int:
        """The broker's wall clock."""

    def wall_ms_max(self) -> int:
        """The latest time that a broker's wall clock may have shown so far."""

    def log_bytes(self, where: tuple[str, int]) -> int:
        """The size of a partition's batches; its leader must be up."""
