"""The layout of a local cluster: its brokers, and their ports.

    cluster.json     {"version": 1, "brokers": [{"node_id": 1, "port": 9092, "broker_port": 9095}]}

Ports stay the same from start to start, because brokers and clients remember them. Owns the format
of the file, and which ports a new cluster takes. Does no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Self

HOST = "127.0.0.1"
LAYOUT_NAME = "cluster.json"
BROKERS_MAX = 9
"""More brokers share the cores of the machine, and make nothing safer there."""
PORT_MAX = 65_535
_VERSION = 1


class LayoutError(Exception):
    """The text is not a layout; says why."""


@dataclass(frozen=True, slots=True)
class BrokerPorts:
    """Where one broker listens: for clients, and for the other brokers."""

    node_id: int
    port: int
    broker_port: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The brokers by id, from 1 on."""

    brokers: tuple[BrokerPorts, ...]

    @classmethod
    def of_ports(cls, ports: Sequence[int]) -> Self:
        """A cluster of half as many brokers as `ports`; the first half is for clients."""
        count = len(ports) // 2
        pairs = enumerate(zip(ports[:count], ports[count:], strict=True), 1)
        return cls(tuple(BrokerPorts(node_id, *pair) for node_id, pair in pairs))

    @property
    def servers(self) -> str:
        """HOST:PORT of each broker, as clients take it."""
        return ",".join(f"{HOST}:{broker.port}" for broker in self.brokers)

    @property
    def quorum(self) -> str:
        """The setting `quorum` of each broker."""
        return ",".join(f"{b.node_id}@{HOST}:{b.broker_port}" for b in self.brokers)

    def encode(self) -> str:
        """The content of the file."""
        brokers = [asdict(broker) for broker in self.brokers]
        return json.dumps({"version": _VERSION, "brokers": brokers}, indent=2) + "\n"

    @classmethod
    def decode(cls, text: str) -> Self:
        """The layout in the file. Raises `LayoutError`."""
        try:
            content = json.loads(text)
            version, brokers = content["version"], content["brokers"]
            if version != _VERSION:
                raise LayoutError(f"its version is {version!r}, not {_VERSION}")
            found = tuple(BrokerPorts(**broker) for broker in brokers)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise LayoutError(f"it is not a layout: {error!r}") from error
        ids = [broker.node_id for broker in found]
        ports = [port for broker in found for port in (broker.port, broker.broker_port)]
        if not found or ids != list(range(1, len(found) + 1)):
            raise LayoutError(f"its brokers are {ids}, not 1, 2, ...")
        if not all(isinstance(port, int) and 0 < port <= PORT_MAX for port in ports):
            raise LayoutError(f"its ports are {ports}")
        return cls(found)
