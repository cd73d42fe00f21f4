"""The state of the process for a service manager: systemd's notifications.

Owns the datagrams. Does nothing without `NOTIFY_SOCKET`, which systemd sets for `Type=notify` and
`Type=notify-reload`. Source: sd_notify(3).
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Final

from millrace_server.logs import get_logger

log = get_logger("millrace.serve")
READY: Final = "READY=1"
RELOADING: Final = "RELOADING=1"
STOPPING: Final = "STOPPING=1"
_VARIABLE: Final = "NOTIFY_SOCKET"


def notify(environment: Mapping[str, str], state: str) -> None:
    """Tells the service manager, if there is one. A broker that cannot tell it serves on."""
    path = environment.get(_VARIABLE)
    if not path:
        return
    # A name that begins with @ is in the abstract namespace.
    address = "\0" + path[1:] if path.startswith("@") else path
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            # The receiver's queue may be full: the loop does not wait for it.
            sender.setblocking(False)
            sender.sendto(state.encode(), address)
    except OSError as error:
        log.warning("service manager not told", state=state, error=str(error))


def notify_reloading(environment: Mapping[str, str], monotonic_us: int) -> None:
    """Tells it that a reload begins, which `READY` ends; the time is that of CLOCK_MONOTONIC.

    systemd takes the time for whether the reload is the one that it has asked for.
    """
    notify(environment, f"{RELOADING}\nMONOTONIC_USEC={monotonic_us}")
