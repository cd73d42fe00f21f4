"""The layout of a cluster of brokers on one machine: ids, ports, directories.

Brokers have the ids 1 to `count`. All of them vote in the metadata quorum. Each has a port for
clients, a port for the other brokers, and a data directory.

    DATA/broker-1   DATA/broker-2   DATA/broker-3
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from millrace_server.testing.links import Direction, between
from millrace_server.testing.reserved_ports import HOST, ReservedPorts


class ClusterLayout:
    """Lives from construction to `release`; without `data` the directories are temporary."""

    def __init__(self, count: int, data: str | Path | None) -> None:
        """Raises `ValueError` unless there is at least one broker."""
        if count < 1:
            raise ValueError(f"a cluster has at least one broker, and not {count}")
        self.ids = tuple(range(1, count + 1))
        self._temporary = tempfile.TemporaryDirectory(prefix="millrace-") if data is None else None
        self.data = Path(self._temporary.name if self._temporary is not None else str(data))
        self._reserved = ReservedPorts(2 * count)
        ports = self._reserved.ports
        self.ports = dict(zip(self.ids, ports[:count], strict=True))
        """Where brokers listen for clients, by broker id."""
        self.broker_ports = dict(zip(self.ids, ports[count:], strict=True))
        """Where brokers listen for each other."""

    @property
    def is_temporary(self) -> bool:
        """Whether the data goes with the cluster."""
        return self._temporary is not None

    @property
    def quorum(self) -> str:
        """The setting `quorum`, the same for all brokers."""
        return ",".join(f"{each}@{HOST}:{self.broker_ports[each]}" for each in self.ids)

    @property
    def servers(self) -> str:
        """HOST:PORT of every broker, as clients take it."""
        return ",".join(self.server(each) for each in self.ids)

    def check(self, *ids: int) -> None:
        """Raises `ValueError` for an id that no broker has."""
        for each in ids:
            if each not in self.ids:
                known = ", ".join(map(str, self.ids))
                raise ValueError(f"there is no broker {each!r}; the cluster has {known}")

    def directions(self, one: int, other: int, *, one_way: bool) -> list[Direction]:
        """The link between two brokers, both ways or one. Raises `ValueError`."""
        self.check(one, other)
        if one == other:
            raise ValueError(f"a link is between two brokers, and both are broker {one}")
        return [(one, other)] if one_way else between([one], [other])

    def directions_around(self, broker_id: int) -> list[Direction]:
        """All links of a broker, both ways. Raises `ValueError`."""
        self.check(broker_id)
        return between([broker_id], self.ids)

    def server(self, broker_id: int) -> str:
        """HOST:PORT of one broker."""
        return f"{HOST}:{self.ports[broker_id]}"

    def directory(self, broker_id: int) -> Path:
        """The data directory of a broker."""
        return self.data / f"broker-{broker_id}"

    def release(self) -> None:
        """Leaves the ports to others, and removes temporary data."""
        self._reserved.release()
        if self._temporary is not None:
            self._temporary.cleanup()
