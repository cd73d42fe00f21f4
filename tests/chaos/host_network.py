"""Hosts on one machine: network namespaces that are joined by a bridge.

Owns the commands of iproute2 and util-linux. A cut link loses packets in one direction, as a broken
cable does: the host that sends is given an address of the link layer that no host has. Neither side
is told, and what waits to be sent arrives when the link is healed. Needs a network namespace of its
own with the rights of root in it (`inside_namespace`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

CLIENTS = 0
"""The host of this process; brokers have the numbers from 1 on."""
_INSIDE = "CHAOS_NAMESPACE"
_BRIDGE = "br0"
_LINK = "eth0"
_NOWHERE = "02:00:00:00:00:ff"
_TOOLS = ("unshare", "nsenter", "ip")


def refusal() -> str | None:
    """Why this machine gives a user no network namespaces; None if it does."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"there is no {', '.join(missing)}"
    tried = subprocess.run(
        ["unshare", "-rn", "ip", "link", "add", _BRIDGE, "type", "bridge"],
        capture_output=True,
        text=True,
        check=False,
    )
    return None if tried.returncode == 0 else f"no network namespaces: {tried.stderr.strip()}"


def inside_namespace(module: str, arguments: Sequence[str]) -> None:
    """Runs the module again in a namespace of its own, unless this is that run."""
    if _INSIDE not in os.environ:
        os.environ[_INSIDE] = "yes"
        os.execvp("unshare", ["unshare", "-rn", sys.executable, "-m", module, *arguments])


def address(host: int) -> str:
    """The IP address of a host."""
    return f"10.77.0.{100 + host}"


def _link_address(host: int) -> str:
    return f"02:00:00:00:00:{host:02x}"


class HostNetwork:
    """`brokers` hosts and that of the clients, until it is closed."""

    def __init__(self, brokers: int) -> None:
        self._hosts = (CLIENTS, *range(1, brokers + 1))
        self._holders: dict[int, subprocess.Popen[bytes]] = {}
        self._cut: set[tuple[int, int]] = set()

    def command(self, host: int, *arguments: str) -> list[str]:
        """A command line that runs on a host."""
        if host == CLIENTS:
            return [*arguments]
        return ["nsenter", "-t", str(self._holders[host].pid), "-n", *arguments]

    def cut(self, sources: Iterable[int], targets: Iterable[int]) -> None:
        """Loses every packet from a source to a target from now on."""
        for source in sources:
            for target in targets:
                if source != target:
                    self._set_neighbour(source, target, _NOWHERE)
                    self._cut.add((source, target))

    def heal(self) -> None:
        """Cuts nothing any more."""
        for source, target in self._cut:
            self._set_neighbour(source, target, _link_address(target))
        self._cut.clear()

    def __enter__(self) -> Self:
        self._ip(CLIENTS, "link add", _BRIDGE, "address", _link_address(CLIENTS), "type bridge")
        self._bring_up(CLIENTS, _BRIDGE)
        for host in self._hosts[1:]:
            self._add(host)
        for source in self._hosts:
            for target in self._hosts:
                if source != target:
                    self._set_neighbour(source, target, _link_address(target))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for holder in self._holders.values():
            holder.kill()
            holder.wait()

    def _add(self, host: int) -> None:
        # The namespace lives as long as this process; a broker may be killed and started in it.
        holder = subprocess.Popen(
            ["unshare", "-n", "sh", "-c", "echo; exec sleep infinity"], stdout=subprocess.PIPE
        )
        self._holders[host] = holder
        assert holder.stdout is not None
        holder.stdout.readline()
        holder.stdout.close()
        port = f"port{host}"
        peer = f"type veth peer name {_LINK} address {_link_address(host)} netns {holder.pid}"
        self._ip(CLIENTS, "link add", port, peer)
        self._ip(CLIENTS, "link set", port, "up master", _BRIDGE)
        self._bring_up(host, _LINK)

    def _bring_up(self, host: int, link: str) -> None:
        self._ip(host, "link set lo up")
        self._ip(host, "addr add", f"{address(host)}/24", "dev", link)
        self._ip(host, "link set", link, "up")

    def _set_neighbour(self, source: int, target: int, link_address: str) -> None:
        link = _BRIDGE if source == CLIENTS else _LINK
        known = f"{address(target)} lladdr {link_address} dev {link} nud permanent"
        self._ip(source, "neigh replace", known)

    def _ip(self, host: int, *words: str) -> None:
        arguments = " ".join(words).split()
        subprocess.run(self.command(host, "ip", *arguments), check=True)
