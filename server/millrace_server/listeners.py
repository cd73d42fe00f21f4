"""The listeners for clients: where a broker listens, and where clients find each of them.

Owns the text of the settings `listen` and `advertise`, entries with commas between them:

    listen     [NAME=][SCHEME]HOST:PORT     "127.0.0.1:9092, public=sasl+tls://0.0.0.0:9093"
    advertise  [NAME=]HOST:PORT             "public=broker-1.example.com:9093"

    scheme       the connections have          Kafka's name    name of the listener without one
    (none)       neither TLS nor SASL          PLAINTEXT       plain
    tls://       TLS                           SSL             tls
    sasl://      SASL                          SASL_PLAINTEXT  sasl
    sasl+tls://  TLS, and SASL behind it       SASL_SSL        sasl-tls

A client learns the addresses of all brokers
on the listener that it has connected to (KIP-103), so a name means the same on each broker.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass

Address = tuple[str, int]
PLAIN = "plain"
"""The name of a listener that is given none and has no scheme."""
LISTENERS_MAX = 16
_SCHEMES = {
    "": (PLAIN, False, False),
    "tls://": ("tls", True, False),
    "sasl://": ("sasl", False, True),
    "sasl+tls://": ("sasl-tls", True, True),
}
"""The name of a listener that is given none, whether it has TLS, and whether it has SASL."""
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """One listener. `advertised` is where clients find it; None: at the address listened on.

    `is_sasl`: a client proves who it is before it may ask for anything else. `is_for_brokers`: it
    is not of `listen`, and the cluster's other brokers connect to it.
    """

    name: str
    address: Address
    is_tls: bool = False
    advertised: Address | None = None
    is_sasl: bool = False
    is_for_brokers: bool = False

    @property
    def scheme(self) -> str:
        """As it stands before HOST:PORT: `sasl+tls://`."""
        kind = (self.is_tls, self.is_sasl)
        return next(scheme for scheme, (_, *known) in _SCHEMES.items() if tuple(known) == kind)


def parse_listeners(listen: str) -> tuple[ListenerConfig, ...]:
    """The listeners of `listen`, in its order. Raises `ValueError`."""
    found = tuple(_listeners(listen))
    if not found:
        raise ValueError("is empty; give HOST:PORT")
    if len(found) > LISTENERS_MAX:
        raise ValueError(f"has {len(found)} listeners; there are at most {LISTENERS_MAX}")
    names = [each.name for each in found]
    for number, listener in enumerate(found):
        if listener.name in names[:number]:
            raise ValueError(
                f"has two listeners named {listener.name!r}; name each, as in "
                "internal=127.0.0.1:9092"
            )
    addresses = [each.address for each in found if each.address[1]]
    for number, address in enumerate(addresses):
        if address in addresses[:number]:
            raise ValueError(f"has {address[0]}:{address[1]} twice")
    return found


def parse_advertised(advertise: str, listeners: tuple[ListenerConfig, ...]) -> dict[str, Address]:
    """The addresses of `advertise` by the name of the listener, the first one's where none is
    given. Raises `ValueError`."""
    found: dict[str, Address] = {}
    for name, text in _entries(advertise):
        listener = name or listeners[0].name
        if listener not in {each.name for each in listeners}:
            known = ", ".join(each.name for each in listeners)
            raise ValueError(f"there is no listener {listener!r}; listen has {known}")
        if listener in found:
            raise ValueError(f"has two addresses of the listener {listener!r}")
        found[listener] = host_and_port(text)
    return found


def host_and_port(text: str) -> Address:
    """Splits HOST:PORT; no host means all addresses. Raises `ValueError`."""
    host, separator, port = text.rpartition(":")
    if not separator or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise ValueError(f"{text!r} is not HOST:PORT with a port of 0 to 65535")
    return host.strip("[]") or "0.0.0.0", int(port)


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine can connect to an address to listen on."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listeners(listen: str) -> Iterator[ListenerConfig]:
    for name, text in _entries(listen):
        scheme, separator, _ = text.rpartition("://")
        scheme += separator
        if scheme not in _SCHEMES:
            known = ", ".join(filter(None, _SCHEMES))
            raise ValueError(f"{text!r} has a scheme that is not known; there are {known}")
        default_name, is_tls, is_sasl = _SCHEMES[scheme]
        address = host_and_port(text.removeprefix(scheme))
        yield ListenerConfig(name or default_name, address, is_tls, is_sasl=is_sasl)


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """Name, empty for none, and the rest of each entry."""
    for entry in filter(None, map(str.strip, text.split(","))):
        name, separator, rest = entry.rpartition("=")
        if separator and not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is no name of a listener; it begins with a letter and has up to 32 of "
                "a-z, 0-9, - and _"
            )
        yield name, rest
